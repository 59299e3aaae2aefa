"""The end of a turn: everything open is closed, what there was is stored, and only then the end is said."""

import asyncio
import logging
from collections.abc import Set
from dataclasses import dataclass

from services.agent import usage
from services.agent.citations import cited_sources
from services.agent.prompt import Round
from services.agent.provider_failure import ProviderFailure
from services.agent.tool_calls import parsed
from services.agent.turn_log import TurnLog
from services.agent.turn_rows import Ended, Turn
from services.agent.turn_store import TurnStore
from shared.contracts.chat import EventType, TurnStatus
from shared.contracts.errors import ServiceError
from shared.messaging.cancellation import SHUTDOWN

logger = logging.getLogger(__name__)

# How long the end of a turn waits for a database or a connection that is away.
STORE_SECONDS = 300.0
DELIVER_SECONDS = 60.0
ENDING_SECONDS = STORE_SECONDS + DELIVER_SECONDS
# How often a reply that the database refuses, though it is there, is tried before its end alone is stored.
REFUSALS_MAX = 5


class TurnFailure(Exception):
    """The turn ends `failed`; code and message as in the event `Error`."""

    def __init__(self, code: str, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retriable = retriable


@dataclass(slots=True)
class Ending:
    """The end of a turn: everything open is closed, stored, then said."""

    turn: Turn
    log: TurnLog
    store: TurnStore
    rounds: list[Round]

    async def write(self, status: TurnStatus, failure: TurnFailure | ProviderFailure | None) -> None:
        """Close open calls, say what failed, store the whole, and only then send `Usage` and `Done`."""
        fold = self.log.fold
        await end_open_calls(self.log, "The turn ended before this call did.")
        if failure is not None:
            await self.log.emit(EventType.ERROR, code=failure.code, message=failure.message, retriable=failure.retriable)
        self._hold_end(status, cited_sources(fold.content, fold.sources))
        if await self._stored() is Ended.SUPERSEDED:
            self.log.fence()
            return
        self.log.release()
        await self.log.publish()
        if not await self.log.delivered(DELIVER_SECONDS):
            logger.error("The end of turn %s could not be published; it is stored", self.turn.id)

    def _hold_end(self, status: TurnStatus, cited: list[int]) -> None:
        # What a request that another attempt gave up has cost, nobody reported.
        self.log.hold(EventType.USAGE, **usage.summed(self.rounds, partial=self.turn.interruptions > 0))
        self.log.hold(EventType.DONE, status=status, cited=cited)

    async def _stored(self) -> Ended:
        """Store, waiting out a database that is away. What cannot be stored at all is left to be taken over."""
        packed, refusals = self.log.packed(), 0
        try:
            async with asyncio.timeout(STORE_SECONDS):
                while refusals < REFUSALS_MAX:
                    try:
                        return await self.store.end(self.turn, self.log.fold, self.rounds, packed)
                    except ServiceError as error:
                        logger.warning("Turn %s cannot be stored yet: %s", self.turn.id, error.detail)
                    except Exception:
                        refusals += 1
                        logger.exception("What turn %s came to is refused by the database", self.turn.id)
                    await asyncio.sleep(0.3)
                return await self._stored_without_content()
        except TimeoutError:
            logger.error("Turn %s could not be stored; it will be taken over", self.turn.id)  # noqa: TRY400
            return Ended.SUPERSEDED

    async def _stored_without_content(self) -> Ended:
        """The one thing worse than a reply that is not kept is a turn without an end, tried again for ever."""
        self.log.withdraw()
        message = "The reply could not be stored; the agent's log has the details."
        await self.log.emit(EventType.ERROR, code="internal", message=message, retriable=True)
        self._hold_end("failed", [])
        return await self.store.end_without_content(self.turn, self.log.last_seq, self.log.packed())


async def end_open_calls(log: TurnLog, why: str, *, but: Set[str] = frozenset()) -> None:
    """Every `ToolCallStart` gets its `ToolCallEnd` (ON-13), `but` those with these ids."""
    for call in log.fold.open_calls:
        if call["id"] in but:
            continue
        arguments = parsed(call["arguments"]) if isinstance(call["arguments"], str) else call["arguments"]
        await log.end_call(call["id"], call["name"], arguments, "failed", error=why)


def status_of_cancel(reason: str) -> tuple[TurnStatus, TurnFailure | None]:
    """What a cancel makes of a turn: the user's wish is no failure; ours is."""
    if reason == "deadline":
        return "cancelled", TurnFailure("deadline_exceeded", "The turn took longer than a turn may take.", retriable=True)
    if reason == SHUTDOWN:
        return "failed", TurnFailure("agent_stopped", "The agent was stopped during this turn; ask again.", retriable=True)
    return "cancelled", None
