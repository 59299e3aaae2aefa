"""Who is alive: each agent beats in the database, watches the others, and ends the turns of one that has gone.

An agent counts as gone when its beat has not moved for a while *as this process saw it*, on its own clock, with the database answering
all the time: no clocks are compared, and an outage of the database makes nobody look dead. Taking a turn over raises its attempt, which
fences the one before: what it still stores or publishes counts for nothing.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from nats.errors import Error as NatsError

from services.agent.prompt import Round
from services.agent.turn import Ending, TurnFailure, UsageSum
from services.agent.turn_log import TurnLog
from services.agent.turn_store import Turn, TurnStore
from services.agent.turns import Turns, stored_events
from shared.contracts.errors import ServiceError
from shared.database.pool import Pool, connection
from shared.messaging.bus import Bus

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
GONE_AFTER_SECONDS = 4.0


@dataclass(slots=True)
class _Observation:
    beats: int
    since: float


class Lease:
    """This agent's beat, and its eye on the others."""

    def __init__(self, pool: Pool, bus: Bus, store: TurnStore, turns: Turns) -> None:
        self._pool = pool
        self._bus = bus
        self._store = store
        self._turns = turns
        self._seen: dict[UUID, _Observation] = {}
        self._orphans: dict[UUID, float] = {}
        self._endings: dict[UUID, asyncio.Task[None]] = {}

    async def keep(self) -> None:
        """Beat and watch for ever."""
        try:
            await self._keep()
        finally:
            for ending in self._endings.values():
                ending.cancel()

    async def _keep(self) -> None:
        while True:
            try:
                await self._beat()
                for owner in await self._gone():
                    await self._take_over_from(owner)
                for turn_id in await self._own_orphans():
                    await self._take_over(turn_id, self._store.owner)
            except ServiceError:
                self._seen.clear()  # what we did not see for a while we cannot judge
                self._orphans.clear()
            except (NatsError, TimeoutError) as error:
                logger.warning("Taking over waits for NATS: %r", error)
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self) -> None:
        """Say that we live; learn which of our turns were cancelled or are ours no longer."""
        running = list(self._turns.running)
        async with connection(self._pool) as db:
            await db.execute(
                "INSERT INTO agents (id, beats) VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET beats = agents.beats + 1",
                self._store.owner,
            )
            if not running:
                return
            rows = await db.fetch(
                "SELECT id, owner = $2 AS ours, cancel_requested FROM turns WHERE id = ANY($1)", running, self._store.owner
            )  # fmt: skip
        for row in rows:
            if row["cancel_requested"]:
                self._bus.cancellations.cancel(str(row["id"]), "requested")
            elif not row["ours"] and (run := self._turns.running.get(row["id"])) is not None:
                run.log.fence()
                self._bus.cancellations.cancel(str(row["id"]), "superseded")

    async def _gone(self) -> Iterable[UUID]:
        """Owners of running turns whose beat has stood still for long enough."""
        async with connection(self._pool) as db:
            rows = await db.fetch(
                """
                SELECT owner, COALESCE(max(agents.beats), 0) AS beats FROM turns LEFT JOIN agents ON agents.id = turns.owner
                WHERE status = 'running' AND owner <> $1 GROUP BY owner
                """,
                self._store.owner,
            )
        now = time.monotonic()
        seen = {}
        for row in rows:
            before = self._seen.get(row["owner"])
            same = before is not None and before.beats == row["beats"]
            seen[row["owner"]] = before if before is not None and same else _Observation(row["beats"], now)
        self._seen = seen
        return [owner for owner, observation in seen.items() if now - observation.since >= GONE_AFTER_SECONDS]

    async def _own_orphans(self) -> list[UUID]:
        """Turns that are ours in the database and that nothing here works on: their end could not be stored."""
        async with connection(self._pool) as db:
            rows = await db.fetch("SELECT id FROM turns WHERE owner = $1 AND status = 'running'", self._store.owner)
        now = time.monotonic()
        busy = self._turns.running.keys() | self._endings.keys()
        # A turn is in the database a moment before it is among the running ones.
        self._orphans = {row["id"]: self._orphans.get(row["id"], now) for row in rows if row["id"] not in busy}
        return [turn_id for turn_id, since in self._orphans.items() if now - since >= GONE_AFTER_SECONDS]

    async def _take_over_from(self, owner: UUID) -> None:
        async with connection(self._pool) as db:
            rows = await db.fetch("SELECT id FROM turns WHERE owner = $1 AND status = 'running'", owner)
        for row in rows:
            await self._take_over(row["id"], owner)
        async with connection(self._pool) as db:
            await db.execute("DELETE FROM agents WHERE id = $1", owner)

    async def _take_over(self, turn_id: UUID, former: UUID) -> None:
        """Own the turn from now on, unless another agent was quicker, and end it."""
        async with connection(self._pool) as db:
            row = await db.fetchrow(
                """
                UPDATE turns SET owner = $2, attempt = attempt + 1 WHERE id = $1 AND owner = $3 AND status = 'running'
                RETURNING id, conversation_id, account_id, user_message_id, response_id, status, attempt, last_seq
                """,
                turn_id, self._store.owner, former,
            )  # fmt: skip
        if row is None:
            return
        # Not waited for: an ending may take as long as the stores are away, and the beat must go on.
        ending = self._endings[turn_id] = asyncio.create_task(self._end(Turn(**row)), name=f"ending {turn_id}")
        ending.add_done_callback(lambda done: self._ended(turn_id, done))

    def _ended(self, turn_id: UUID, ending: "asyncio.Task[None]") -> None:
        del self._endings[turn_id]
        if not ending.cancelled() and (error := ending.exception()) is not None:
            logger.error("Ending turn %s failed; trying again", turn_id, exc_info=error)

    async def _end(self, turn: Turn) -> None:
        """End a turn whose agent has gone, with what there was."""
        logger.warning("Turn %s lost its agent; ending it with what there was", turn.id)
        events = await stored_events(self._bus.nats, turn.id)
        log = TurnLog(self._bus.nats, turn.id, attempt=turn.attempt, events=events)
        usage = UsageSum()
        usage.add(None)
        failure = TurnFailure("agent_lost", "The agent that worked on this answer was lost; what it had written is kept.", retriable=True)
        rounds = [Round(content=log.fold.content)]
        await Ending(turn, log, self._store, rounds, usage).write("failed", failure)
