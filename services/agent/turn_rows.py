"""Turns as the database keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any
from uuid import UUID

from services.agent.approval import Decisions, Proposal
from services.agent.fold import Fold
from services.agent.prompt import WAITING_RESULT, Past, Round


class Ended(Enum):
    """What became of the wish to store a turn's end, or that it waits."""

    STORED = "stored"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    # Not to wait: its user has cancelled it meanwhile.
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn's row."""

    id: UUID
    conversation_id: UUID
    account_id: UUID
    user_message_id: UUID
    response_id: UUID
    status: str
    attempt: int
    last_seq: int
    suspensions: int
    handed_over: int

    @property
    def interruptions(self) -> int:
        """How often it was interrupted at work: the attempts that no suspension accounts for."""
        return self.attempt - 1 - self.suspensions

    @property
    def losses(self) -> int:
        """How often its agent was lost without a word; one that was told to stop has said that it leaves the turn."""
        return self.interruptions - self.handed_over


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn that was just stored, with the branch that its model will see; or, with `replayed`, one that was there already.

    `workspace` is the conversation's.
    """

    turn: Turn
    past: list[Past]
    workspace: UUID | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the last whole round of a turn ended: the rounds so far, and how much text, activity and left-out passages they made.

    `proposals` are the changes that wait for the user: their calls have no result yet.
    """

    rounds: list[Round] = field(default_factory=list)
    content_characters: int = 0
    activity_entries: int = 0
    left_out: int = 0
    proposals: list[Proposal] = field(default_factory=list)

    @classmethod
    def at(cls, rounds: list[Round], fold: Fold, proposals: Sequence[Proposal] = ()) -> "Checkpoint":
        """The present end of a round."""
        return cls(list(rounds), len(fold.content), fold.activity_entries, len(fold.left_out), list(proposals))

    @property
    def said(self) -> list[Round]:
        """The rounds as another turn's model is told of them meanwhile: it is not to ask once more for what waits."""
        if not self.proposals:
            return self.rounds
        *before, last = self.rounds
        return [*before, replace(last, results=last.results | {proposal.call: WAITING_RESULT for proposal in self.proposals})]

    def stored(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "rounds": [round_.stored() for round_ in self.rounds],
            "content_characters": self.content_characters,
            "activity_entries": self.activity_entries,
            "left_out": self.left_out,
            "proposals": [proposal.model_dump(mode="json") for proposal in self.proposals],
        }

    @classmethod
    def restored(cls, stored: dict[str, Any]) -> "Checkpoint":
        """From JSON; the first ones stored had no `proposals`."""
        rounds = [Round.restored(round_) for round_ in stored["rounds"]]
        proposals = [Proposal.model_validate(proposal) for proposal in stored.get("proposals", [])]
        return cls(rounds, stored["content_characters"], stored["activity_entries"], stored["left_out"], proposals)


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A turn whose agent is gone, ours from now on, with all that the database knows of it.

    `log` are the events up to the checkpoint, packed; `age` the seconds since the turn began, or went on after it had waited, on the
    database's clock; `decisions` what the user has decided about the checkpoint's proposals.
    """

    begun: Begun
    assignment: dict[str, Any] | None
    checkpoint: Checkpoint
    log: bytes | None
    cancel_requested: bool
    age: float
    decisions: Decisions
