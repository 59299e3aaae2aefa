"""However a text is made, looking for citations takes work in proportion to its length."""

import sys
from types import FrameType

import pytest

from services.agent.citations import cited_numbers, without_numbers
from tests.support.hostile_markdown import SHAPES

CHARACTERS = 4_000


def calls(text: str) -> int:
    """How many calls of functions, Python's own included, it takes."""
    made = 0

    def count(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal made
        made += 1

    sys.setprofile(count)
    try:
        cited_numbers(text, (1, 2, 3))
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_text_is_no_more_than_twice_the_work(shape: str) -> None:
    once, twice = (SHAPES[shape](length) for length in (CHARACTERS, 2 * CHARACTERS))
    assert calls(twice) <= 2.2 * calls(once) + 100


# What the calls do not show, a pattern that looks back or begins anew, would take minutes here, and the test's time would be up.
@pytest.mark.parametrize("shape", SHAPES)
def test_long_texts_are_read_to_their_end(shape: str) -> None:
    text = SHAPES[shape](200_000)
    assert set(cited_numbers(text, (1, 2, 3))) <= {1, 2, 3}
    assert without_numbers(text, {7777: "a.md"}) == text
