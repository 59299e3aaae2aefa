"""Going on with the turns of an agent that is gone: from the end of the last whole round (docs/adr/0019-another-agent-goes-on.md)."""

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from nats.errors import Error as NatsError
from nats.js.errors import APIError

from services.agent.ending import Ending, TurnFailure
from services.agent.prompt import Round
from services.agent.tenure import Tenure
from services.agent.turn import SUPERSEDED, TURN_SECONDS_MAX, Assignment, attempt_scope
from services.agent.turn_log import TurnLog, stored_events, unpack
from services.agent.turn_rows import TakenOver
from services.agent.turn_store import TurnStore
from services.agent.turns import Turns
from shared.contracts.chat import LoggedEvent, StartTurn
from shared.contracts.errors import ServiceError
from shared.messaging.bus import Bus
from shared.messaging.scope import Account

logger = logging.getLogger(__name__)

# A turn that takes its agent with it each time is not for a fourth.
LOSSES_MAX = 2
RETRY_SECONDS = 0.5
AGENT_LOST = TurnFailure("agent_lost", "The agent that worked on this answer was lost; what it had written is kept.", retriable=True)


class Succession:
    """Takes turns over, for this process's `Turns` to run; or ends them, where nobody can go on."""

    def __init__(self, bus: Bus, store: TurnStore, tenure: Tenure, turns: Turns) -> None:
        self._bus = bus
        self._store = store
        self._tenure = tenure
        self._turns = turns
        self._taking_over: dict[UUID, asyncio.Task[None]] = {}

    @property
    def at_work(self) -> set[UUID]:
        """The turns that are just being taken over."""
        return set(self._taking_over)

    async def take_over(self, turn_id: UUID, former: UUID) -> None:
        """Own a turn whose agent is gone, and go on with it in a task of its own, unless another agent was quicker.

        Raises:
            ServiceError: the database is away.
        """
        taken = await self._store.take_over(turn_id, former)
        if taken is None:
            return
        turn = taken.begun.turn
        logger.info("Going on with turn %s in attempt %d; its agent was lost %d times", turn.id, turn.attempt, turn.losses)
        task = asyncio.create_task(self._go_on(taken), name=f"taking over {turn.id}")
        self._taking_over[turn.id] = task
        task.add_done_callback(lambda done: self._went_on(turn.id, done))

    async def close(self) -> None:
        """Leave the turns that are being taken over to others."""
        tasks = list(self._taking_over.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _went_on(self, turn_id: UUID, task: "asyncio.Task[None]") -> None:
        del self._taking_over[turn_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is ours and nobody works on it: the lease finds it again.
            logger.error("Turn %s could not be gone on with; trying again", turn_id, exc_info=error)

    async def _go_on(self, taken: TakenOver) -> None:
        turn = taken.begun.turn
        # Should the one before live after all, it stops here and now.
        await self._bus.client.cancel(attempt_scope(turn.id, turn.attempt - 1), SUPERSEDED)
        events = await self._events_at_last(turn.id, unpack(taken.log) if taken.log is not None else [])
        log = TurnLog(self._bus.nats, self._tenure, turn.id, attempt=turn.attempt, events=events)
        assignment = self._reassigned(taken, log)
        if assignment is None:
            await self._end_taken_over(taken, log)
        else:
            self._turns.launch(assignment, log)

    async def _events_at_last(self, turn_id: UUID, known: Sequence[LoggedEvent]) -> list[LoggedEvent]:
        """The log so far, once NATS is there to give it."""
        while True:
            try:
                return await stored_events(self._bus.nats, turn_id, known)
            except (NatsError, APIError, TimeoutError) as error:
                logger.warning("Taking over waits for NATS: %r", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _reassigned(self, taken: TakenOver, log: TurnLog) -> Assignment | None:
        """What to go on with; None where the turn can only be ended."""
        turn, stored = taken.begun.turn, taken.assignment
        ending = taken.cancel_requested or log.fold.error is not None
        if stored is None or ending or turn.losses > LOSSES_MAX or taken.age > TURN_SECONDS_MAX:
            return None
        start = StartTurn(turn_id=turn.id, **stored["start"])
        try:
            return self._turns.assignment(start, taken.begun, Account(turn.account_id, stored["role"]), taken)
        except ServiceError as error:
            logger.warning("Turn %s cannot be gone on with: %s", turn.id, error.detail)
            return None

    async def _end_taken_over(self, taken: TakenOver, log: TurnLog) -> None:
        """End it with what there was."""
        fold, checkpoint = log.fold, taken.checkpoint
        beyond = Round(content=fold.content[checkpoint.content_characters :])
        rounds = [*checkpoint.rounds, *([] if beyond.is_empty else [beyond])]
        ending = Ending(taken.begun.turn, log, self._store, rounds)
        if taken.cancel_requested:
            await ending.write("cancelled", None)
        elif fold.error is not None:  # the one before had said so already
            await ending.write("failed", None)
        else:
            await ending.write("failed", AGENT_LOST)
