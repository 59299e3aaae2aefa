"""A turn that comes to wait for its user: all of it is stored, and only then that is said. No agent holds it from then on (MD-5)."""

import asyncio
import logging
from dataclasses import dataclass

from services.agent.approval import Decisions
from services.agent.ending import DELIVER_SECONDS
from services.agent.turn_log import TurnLog
from services.agent.turn_rows import Checkpoint, Ended, Turn
from services.agent.turn_store import TurnStore
from shared.contracts.chat import EventType
from shared.contracts.errors import ServiceError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Suspension:
    """The end of a turn's present stretch."""

    turn: Turn
    log: TurnLog
    store: TurnStore
    checkpoint: Checkpoint

    async def write(self) -> Decisions | Ended:
        """`STORED`: it waits, and readers know. Otherwise nothing was said: it is not ours any more, its user has cancelled it, or has
        decided something already.

        A database that is away is waited for, as long as the caller lets us.
        """
        calls = [proposal.call for proposal in self.checkpoint.proposals]
        self.log.hold(EventType.SUSPENDED, reason="awaiting_approval", tool_call_ids=calls)
        outcome: Decisions | Ended = Ended.SUPERSEDED
        try:
            outcome = await self._stored()
        finally:
            if outcome is not Ended.STORED:
                self.log.withdraw()
        if outcome is not Ended.STORED:
            return outcome
        self.log.release()
        await self.log.publish()
        if not await self.log.delivered(DELIVER_SECONDS):
            logger.error("That turn %s waits could not be published; it is stored", self.turn.id)
        return outcome

    async def _stored(self) -> Decisions | Ended:
        packed = self.log.packed()
        while True:
            try:
                return await self.store.suspend(self.turn, self.log.fold, self.checkpoint, packed)
            except ServiceError as error:
                logger.warning("That turn %s waits cannot be stored yet: %s", self.turn.id, error.detail)
            await asyncio.sleep(RETRY_SECONDS)
