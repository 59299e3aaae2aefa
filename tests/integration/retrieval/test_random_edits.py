"""Edits at random while retrieval and the index are killed: in the end vault, tables and index say the same. `--edits 1000` for long."""

import asyncio
import base64
import logging
import os
import random
import sys
from pathlib import Path
from uuid import UUID

import asyncpg
import numpy as np
import pytest

from local.stack import ROOT
from services.retrieval.chunking import chunk_note
from services.retrieval.tokens import query_vector
from shared.contracts import index
from shared.contracts.errors import ServiceError
from shared.contracts.index import Filter, Search
from shared.contracts.subject import Empty
from shared.messaging.scope import Scope
from tests.integration.retrieval.conftest import DIMENSION, Stand
from tests.support.polling import eventually

logger = logging.getLogger(__name__)

PATHS = [f"{folder}{name}.md" for folder in ("", "a/", "a/b/") for name in ("heron", "trout", "苍鹭", "newt")]
WORDS = ["heron", "trout", "newt", "reed", "river", "swims", "stands", "flies", "苍鹭", "站立", "在水边"]
EDITS_PER_KILL = 14
SETTLED_SHARE = 0.2
# In every text, so that one search finds them all.
EVERYWHERE = "everywhere"


class Killable:
    """A program that is started again whenever it is killed."""

    def __init__(self, module: str, environment: dict[str, str]) -> None:
        self._module = module
        self._environment = {**os.environ, **environment}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Also again."""
        self._process = await asyncio.create_subprocess_exec(sys.executable, "-m", self._module, cwd=ROOT, env=self._environment)

    async def kill(self) -> None:
        """As the system would, out of memory."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()


async def edit(stand: Stand, vault: UUID, chance: random.Random) -> None:
    """One of what people do to notes."""
    present = [path for workspace, path in stand.notes.notes if workspace == vault]
    what = chance.choice(["write", "write", "write", "move", "delete"])
    free = [path for path in PATHS if path not in present]
    if what == "move" and present and free:
        await stand.notes.move(vault, chance.choice(present), chance.choice(free))
    elif what == "delete" and len(present) > 3:
        await stand.notes.delete(vault, chance.choice(present))
    else:
        sections = [
            f"## {chance.choice(WORDS)}\n\n{EVERYWHERE} {' '.join(chance.choices(WORDS, k=4))}" for _ in range(chance.randint(1, 4))
        ]
        await stand.notes.put(vault, chance.choice(PATHS), "\n\n".join(sections), tags=(chance.choice(WORDS),))


async def in_tables(stand: Stand) -> tuple[dict[str, list[str]], set[UUID]]:
    """Each note's texts, and the points that the index should have."""
    connection = await asyncpg.connect(stand.database_url, server_settings={"search_path": "retrieval"})
    try:
        rows = await connection.fetch(
            "SELECT d.path, c.text, c.point FROM documents d JOIN chunks c ON c.document = d.id ORDER BY c.ordinal"
        )
    finally:
        await connection.close()
    texts: dict[str, list[str]] = {}
    for row in rows:
        texts.setdefault(row["path"], []).append(row["text"])
    return texts, {row["point"] for row in rows}


async def in_index(stand: Stand, vault: UUID) -> tuple[set[UUID], set[UUID], int]:
    """The points that are found by the word that is everywhere, those that have a vector, and how many there are."""
    near = base64.b64encode(np.ones(DIMENSION, "<f4").tobytes()).decode()
    request = Search(filter=Filter(workspaces=[vault]), sparse=query_vector(EVERYWHERE), dense=near, limit=10_000)
    reply = await stand.bus.client.ask(index.SEARCH, request, Scope.root(10))
    stats = await stand.bus.client.ask(index.STATS, Empty(), Scope.root(10))
    return {hit.id for hit in reply.sparse}, {hit.id for hit in reply.dense}, stats.points


async def test_vault_tables_and_index_agree_after_random_edits_and_kills(
    stand: Stand, nats_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seed = random.randrange(2**32)
    logger.warning("seed %d", seed)
    chance, vault = random.Random(seed), stand.notes.workspace()
    environment = {"NATS_URL": nats_url, "DATABASE_URL": stand.database_url, "EMBEDDING_BASE_URL": stand.model.url}
    engine = Killable("local.index_engine", {"NATS_URL": nats_url, "MARGINALIA_HOME": str(tmp_path)})
    service = Killable("services.retrieval", environment)
    await engine.start()
    await service.start()

    async def taken_in() -> bool:
        try:
            now = await stand.status()
        except ServiceError:
            return False
        return (now.indexed, now.pending, now.unembedded) == (len(stand.notes.notes), 0, 0)

    try:
        await eventually(taken_in, 60)
        for number in range(1, int(pytestconfig.getoption("--edits")) + 1):
            await edit(stand, vault, chance)
            # Now and then all is published before it is edited again, now and then what is due dies with the process.
            if chance.random() < SETTLED_SHARE:
                await eventually(taken_in, 60)
            else:
                await asyncio.sleep(chance.choice([0, 0, 0.02, 0.2]))
            if number % EDITS_PER_KILL == 0:
                victim = chance.choice([engine, service])
                await victim.kill()
                await victim.start()
        expected = {path: [chunk.text for chunk in chunk_note(vault, note.content)] for (_, path), note in stand.notes.notes.items()}
        await eventually(taken_in, 60)
        # What was replaced goes once nobody can be reading it; a start looks for what is due.
        await service.kill()
        await stand.fetchval("UPDATE removals SET due_at = now()")
        await service.start()

        async def agree() -> bool:
            texts, points = await in_tables(stand)
            return texts == expected and await in_index(stand, vault) == (points, points, len(points))

        await eventually(agree, 30)
    finally:
        await service.kill()
        await engine.kill()
