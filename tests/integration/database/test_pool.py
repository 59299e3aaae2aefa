"""What a database's own troubles are told as."""

import pytest

from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import connection, open_pool


@pytest.mark.parametrize("state", ["53000", "53100", "53200", "53300", "57P01", "57P03"])
async def test_a_database_that_is_short_of_something_is_away_and_not_at_fault(database_url: str, state: str) -> None:  # OP-3
    pool = await open_pool(database_url, "public", size=1)
    try:
        with pytest.raises(ServiceError) as refused:
            async with connection(pool) as db:
                await db.execute(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$")
        assert refused.value.code is ErrorCode.UNAVAILABLE
        async with connection(pool) as db:
            assert await db.fetchval("SELECT 1") == 1
    finally:
        await pool.close()
