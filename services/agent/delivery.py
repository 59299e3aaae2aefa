"""From what a provider says to events: the deltas of one round, as they arrive."""

from services.agent.completion import PIECE_CHARACTERS_MAX, Completion, Delta, Text, Thinking
from services.agent.tool_calls import CallArguments, CallStarted
from services.agent.tools import our_name
from services.agent.turn_log import TurnLog
from shared.contracts.chat import EventType


class Delivery:
    """Deltas of one round into events. What arrived together goes out together."""

    def __init__(self, log: TurnLog, completion: Completion, round_number: int) -> None:
        self._log = log
        self._completion = completion
        self._round = round_number
        # Text after a tool call is parted from the text before by a blank line (ON-11).
        self._separator = "\n\n" if log.fold.content and not log.fold.content.endswith("\n\n") else ""

    async def __call__(self, deltas: list[Delta]) -> None:
        """Append events for the deltas and publish them."""
        for delta in _joined(deltas):
            match delta:
                case Thinking(text):
                    self._log.append(EventType.THINKING_DELTA, text=text)
                case Text(text):
                    self._log.append(EventType.TEXT_DELTA, text=self._separator + text)
                    self._separator = ""
                case CallStarted(_, identifier, name):
                    self._log.append(EventType.TOOL_CALL_START, tool_call_id=identifier, name=our_name(name), round=self._round)
                case CallArguments(position, fragment):
                    identifier = self._completion.call(position).id
                    self._log.append(EventType.TOOL_CALL_DELTA, tool_call_id=identifier, arguments=fragment)
        await self._log.publish()


def _joined(deltas: list[Delta]) -> list[Delta]:
    """Neighbouring pieces of text, or of thinking, as one: they came in one read, so nobody waits longer."""
    joined: list[Delta] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        if isinstance(delta, Text) and isinstance(last, Text) and len(last.text) < PIECE_CHARACTERS_MAX:
            joined[-1] = Text(last.text + delta.text)
        elif isinstance(delta, Thinking) and isinstance(last, Thinking) and len(last.text) < PIECE_CHARACTERS_MAX:
            joined[-1] = Thinking(last.text + delta.text)
        else:
            joined.append(delta)
    return joined
