"""Which passages of a run become evidence: whole, in rank order, within the budgets (RC-5 to RC-7). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from services.contexts.responses_request import input_characters
from shared.contracts.evidence import Candidate

type Exclusion = Literal["overlap", "evidence_limit", "budget"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What was taken, labelled from E1, and what was left out and why. `input_characters` is 0 where nothing was taken."""

    evidence: list[dict[str, Any]]
    excluded: list[dict[str, str]]
    input_characters: int

    @property
    def status(self) -> str:
        """`prepared` says that there are passages to assemble, not that they suffice (RC-10)."""
        return "prepared" if self.evidence else "insufficient_evidence"

    @property
    def reason(self) -> str:
        """Why."""
        if self.evidence:
            return "candidates_available"
        return "context_budget" if self.excluded else "no_candidates"


def select(question: str, candidates: Sequence[Candidate], *, max_evidence: int, max_input_characters: int) -> Selection:
    """Take candidates as they are ranked; one that does not fit is left out whole, and later ones are still tried."""
    taken: list[Candidate] = []
    evidence: list[dict[str, Any]] = []
    excluded: list[dict[str, str]] = []
    characters = 0
    for candidate in sorted(candidates, key=lambda candidate: candidate.rank):
        item = {"label": f"E{len(evidence) + 1}", **candidate.model_dump(mode="json")}
        reason, with_it = _objection(question, candidate, item, taken, evidence, max_evidence, max_input_characters)
        if reason is not None:
            excluded.append({"chunk_id": str(candidate.chunk_id), "reason": reason})
            continue
        taken.append(candidate)
        evidence.append(item)
        characters = with_it
    return Selection(evidence, excluded, characters)


def _objection(
    question: str,
    candidate: Candidate,
    item: dict[str, Any],
    taken: Sequence[Candidate],
    evidence: Sequence[dict[str, Any]],
    max_evidence: int,
    max_input_characters: int,
) -> tuple[Exclusion | None, int]:
    """Why a candidate is left out, and how many characters the request would have with it."""
    if any(_overlap(candidate, other) for other in taken):
        return "overlap", 0
    if len(evidence) == max_evidence:
        return "evidence_limit", 0
    characters = input_characters(question, [*evidence, item])
    return ("budget" if characters > max_input_characters else None), characters


def _overlap(one: Candidate, other: Candidate) -> bool:
    return one.knowledge_id == other.knowledge_id and one.start < other.end and other.start < one.end
