"""Which passages become evidence (RC-5 to RC-7)."""

import pytest

from services.contexts.evidence_prompt import INSTRUCTIONS
from services.contexts.responses_request import input_characters
from services.contexts.selection import Selection, select
from shared.contracts.evidence import Candidate
from tests.unit.contexts.evidence import candidate


def selected(*candidates: Candidate, evidence: int = 5, characters: int = 10_000) -> Selection:
    return select("How long?", candidates, max_evidence=evidence, max_input_characters=characters)


def taken(selection: Selection) -> list[tuple[str, int]]:
    return [(item["label"], item["rank"]) for item in selection.evidence]


def reasons(selection: Selection) -> list[str]:
    return [one["reason"] for one in selection.excluded]


def test_passages_are_taken_whole_in_the_order_of_their_rank() -> None:  # RC-5
    selection = selected(candidate(2, note="b"), candidate(1, note="a"), candidate(3, note="c"))
    assert taken(selection) == [("E1", 1), ("E2", 2), ("E3", 3)]
    assert (selection.status, selection.reason, selection.excluded) == ("prepared", "candidates_available", [])
    assert selection.input_characters == input_characters("How long?", selection.evidence) > len(INSTRUCTIONS)


def test_what_overlaps_a_passage_that_was_taken_of_the_same_note_is_left_out() -> None:  # RC-6
    first = candidate(1, "0123456789", start=100)
    touching, inside, across = (candidate(rank, "0123456789", start=start) for rank, start in ((2, 110), (3, 105), (4, 95)))
    other = candidate(5, "0123456789", note="other", start=105)
    selection = selected(first, touching, inside, across, other)
    assert taken(selection) == [("E1", 1), ("E2", 2), ("E3", 5)]
    assert reasons(selection) == ["overlap", "overlap"]
    assert selection.excluded[0]["chunk_id"] == str(inside.chunk_id)


def test_what_does_not_fit_is_left_out_whole_and_later_ones_are_tried() -> None:  # RC-6
    long, short = candidate(2, "long " * 1000, note="long"), candidate(3, "Short.", note="short")
    selection = selected(candidate(1), long, short, characters=3000)
    assert taken(selection) == [("E1", 1), ("E2", 3)]
    assert reasons(selection) == ["budget"]
    assert selection.input_characters <= 3000


def test_the_budget_is_kept_to_the_character() -> None:  # RC-2
    one = candidate(1)
    needed = selected(one).input_characters
    assert taken(selected(one, characters=needed)) == [("E1", 1)]
    assert selected(one, characters=needed - 1).reason == "context_budget"


def test_beyond_the_limit_nothing_is_taken() -> None:  # RC-6
    selection = selected(*(candidate(rank, note=f"n{rank}") for rank in range(1, 5)), evidence=2)
    assert (taken(selection), reasons(selection)) == ([("E1", 1), ("E2", 2)], ["evidence_limit"] * 2)


@pytest.mark.parametrize(("candidates", "reason"), [([], "no_candidates"), ([candidate(1, "x" * 9000)], "context_budget")])
def test_without_evidence_it_is_said_why(candidates: list[Candidate], reason: str) -> None:  # RC-7
    selection = selected(*candidates, characters=5000)
    assert (selection.status, selection.reason, selection.input_characters) == ("insufficient_evidence", reason, 0)
