"""The fixtures that other tests stand on."""

import asyncpg
import nats

from tests.support.nats_server import RunningNats


async def test_each_test_gets_an_empty_database(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    finally:
        await connection.close()


async def test_nats_keeps_streams_on_disk_across_a_restart(own_nats: RunningNats) -> None:
    client = await nats.connect(own_nats.url)
    await client.jetstream().add_stream(name="KEPT", subjects=["kept.>"])
    await client.jetstream().publish("kept.1", b"here")
    await client.close()
    await own_nats.stop()
    await own_nats.start()
    client = await nats.connect(own_nats.url)
    assert (await client.jetstream().stream_info("KEPT")).state.messages == 1
    await client.close()


async def test_the_shared_server_starts_each_test_without_streams(nats_url: str) -> None:
    client = await nats.connect(nats_url)
    assert await client.jetstream().streams_info() == []
    await client.jetstream().add_stream(name="LEFT", subjects=["left.>"])
    await client.close()
