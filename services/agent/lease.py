"""Who is alive: each agent beats in the database, watches the others, and takes over the turns of one that has gone.

An agent counts as gone when its beat has not moved for a while *as this process saw it*, on its own clock, with the database answering
all the time: no clocks are compared, and an outage of the database makes nobody look dead. Where NATS, too, says that nobody is there, a
short while is enough. Taking a turn over raises its attempt, which fences the one before: what it still stores or publishes
counts for nothing (see `tenure` for how it is kept from publishing at all).
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from services.agent.succession import Succession
from services.agent.tenure import Tenure
from services.agent.turn_store import NOBODY, TurnStore
from services.agent.turns import Turns
from shared.contracts.chat import ALIVE
from shared.contracts.errors import ServiceError
from shared.database.pool import Pool, connection
from shared.messaging.bus import Bus
from shared.messaging.reply import answerable

logger = logging.getLogger(__name__)

BEAT_SECONDS = 0.5
# Gone for all that we know: frozen, or cut off from the database.
GONE_AFTER_SECONDS = 4.0
# Gone for certain, where its connection to NATS has gone as well.
MISSED_AFTER_SECONDS = 1.2
ALIVE_SECONDS = 0.5


@dataclass(slots=True)
class _Observation:
    beats: int
    since: float


class Lease:
    """This agent's beat, and its eye on the others."""

    def __init__(self, pool: Pool, bus: Bus, store: TurnStore, tenure: Tenure, turns: Turns, succession: Succession) -> None:
        self._pool = pool
        self._bus = bus
        self._store = store
        self._tenure = tenure
        self._turns = turns
        self._succession = succession
        self._seen: dict[UUID, _Observation] = {}
        self._orphans: dict[UUID, float] = {}

    async def answer(self) -> None:
        """Be there for agents that miss our beat."""

        async def here(message: Msg) -> None:
            if answerable(message.reply):
                await message.respond(b"")

        await self._bus.nats.subscribe(ALIVE.subject(self._store.owner), cb=here)

    async def keep(self) -> None:
        """Beat and watch for ever."""
        while True:
            self._tenure.tick()
            try:
                await self._beat()
                gone = await self._gone()
                if not self._bus.stopping:
                    await self._take_over(gone)
            except ServiceError:
                self._seen.clear()  # what we did not see for a while we cannot judge
                self._orphans.clear()
            await asyncio.sleep(BEAT_SECONDS)

    async def _take_over(self, gone: Iterable[UUID]) -> None:
        for owner in gone:
            await self._take_over_from(owner)
        for turn_id in await self._own_orphans():
            await self._succession.take_over(turn_id, self._store.owner)

    async def _beat(self) -> None:
        """Say that we live; learn which of our turns were cancelled or are ours no longer."""
        running, asked_at = list(self._turns.running), time.monotonic()
        async with connection(self._pool) as db:
            rows = await db.fetch(
                """
                WITH beat AS (
                    INSERT INTO agents (id, beats) VALUES ($2, 1) ON CONFLICT (id) DO UPDATE SET beats = agents.beats + 1
                )
                SELECT id, owner = $2 AS ours, cancel_requested FROM turns WHERE id = ANY($1)
                """,
                running, self._store.owner,
            )  # fmt: skip
        for row in rows:
            if row["cancel_requested"]:
                self._bus.cancellations.cancel(str(row["id"]), "requested")
        await self._turns.confirm([row["id"] for row in rows if not row["ours"]], asked_at)

    async def _gone(self) -> Iterable[UUID]:
        """Agents whose beat has stood still for long enough, and whoever is named as the owner of a turn without being an agent."""
        async with connection(self._pool) as db:
            rows = await db.fetch(
                """
                SELECT id, max(beats) AS beats FROM (
                    SELECT id, beats FROM agents UNION ALL SELECT owner, 0 FROM turns WHERE status = 'running'
                ) AS known WHERE id <> $1 GROUP BY id
                """,
                self._store.owner,
            )
        now = time.monotonic()
        seen = {}
        for row in rows:
            before = self._seen.get(row["id"])
            same = before is not None and before.beats == row["beats"]
            seen[row["id"]] = before if before is not None and same else _Observation(row["beats"], now)
        self._seen = seen
        missed = {agent: now - observation.since for agent, observation in seen.items() if now - observation.since >= MISSED_AFTER_SECONDS}
        self._turns.colleagues = bool(seen.keys() - missed.keys() - {NOBODY})
        gone = [agent for agent, seconds in missed.items() if seconds >= GONE_AFTER_SECONDS or not await self._is_there(agent)]
        return {*gone, NOBODY} & seen.keys()

    async def _is_there(self, owner: UUID) -> bool:
        """Whether the agent's process is connected to NATS, though it may not answer."""
        try:
            await self._bus.nats.request(ALIVE.subject(owner), b"", timeout=ALIVE_SECONDS)
        except NoRespondersError:
            return not self._bus.connected
        except (NatsError, TimeoutError):
            pass
        return True

    async def _own_orphans(self) -> list[UUID]:
        """Turns that are ours in the database and that nothing here works on: their end could not be stored."""
        async with connection(self._pool) as db:
            rows = await db.fetch("SELECT id FROM turns WHERE owner = $1 AND status = 'running'", self._store.owner)
        now = time.monotonic()
        busy = self._turns.running.keys() | self._succession.at_work
        # A turn is in the database a moment before it is among the running ones.
        self._orphans = {row["id"]: self._orphans.get(row["id"], now) for row in rows if row["id"] not in busy}
        return [turn_id for turn_id, since in self._orphans.items() if now - since >= GONE_AFTER_SECONDS]

    async def _take_over_from(self, owner: UUID) -> None:
        async with connection(self._pool) as db:
            rows = await db.fetch("SELECT id FROM turns WHERE owner = $1 AND status = 'running'", owner)
        for row in rows:
            await self._succession.take_over(row["id"], owner)
        async with connection(self._pool) as db:
            await db.execute("DELETE FROM agents WHERE id = $1", owner)

    async def leave(self) -> None:
        """Stop beating, so that nobody waits for us."""
        try:
            async with connection(self._pool) as db:
                await db.execute("DELETE FROM agents WHERE id = $1", self._store.owner)
        except ServiceError as error:
            logger.warning("Could not take leave: %s", error.detail)
