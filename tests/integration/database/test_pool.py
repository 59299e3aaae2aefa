"""What a database's own troubles are told as."""

from typing import Any

import asyncpg
import pytest

from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import Pool, connection, open_pool, ping, transaction


@pytest.mark.parametrize("state", ["53000", "53100", "53200", "53300", "57P01", "57P03", "55P03", "57014", "40P01"])
async def test_a_database_that_is_short_of_something_or_too_busy_is_away_and_not_at_fault(database_url: str, state: str) -> None:  # OP-3
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


async def of_a_table_that_went(pool: Pool) -> Any:
    async with connection(pool) as db:
        await db.fetch("SELECT * FROM gone")


async def of_a_column_that_went(pool: Pool) -> Any:
    async with connection(pool) as db:
        await db.fetch("SELECT gone FROM pg_class")


async def of_a_schema_that_went(pool: Pool) -> Any:
    async with connection(pool) as db:
        await db.execute("CREATE TABLE gone.things ()")


async def of_a_table_that_changed(pool: Pool) -> Any:
    async with connection(pool) as db:
        await db.execute("CREATE TABLE things (id int)")
        await db.fetch("SELECT * FROM things")
        await db.execute("ALTER TABLE things ADD COLUMN name text")
    async with transaction(pool) as db:
        await db.fetch("SELECT * FROM things")


@pytest.mark.parametrize("asked", [of_a_table_that_went, of_a_column_that_went, of_a_schema_that_went, of_a_table_that_changed])
async def test_a_database_whose_tables_are_of_another_version_is_away_until_it_is_migrated(database_url: str, asked: Any) -> None:
    pool = await open_pool(database_url, "public", size=1)
    try:
        with pytest.raises(ServiceError) as refused:
            await asked(pool)
        assert refused.value.code is ErrorCode.UNAVAILABLE
        assert "tables" in refused.value.detail
    finally:
        await pool.close()


async def test_a_service_whose_tables_were_taken_back_is_not_ready(database_url: str) -> None:
    db = await asyncpg.connect(database_url)
    pool = await open_pool(database_url, "public", size=1)
    try:
        assert "tables" in str(await ping(pool))
        await db.execute("CREATE TABLE migrations (number int)")
        assert "tables" in str(await ping(pool))
        await db.execute("INSERT INTO migrations VALUES (1)")
        assert await ping(pool) is None
    finally:
        await pool.close()
        await db.close()
