"""Front matter may come from anyone."""

import time

import pytest

from services.notes.front_matter import FrontMatterError, parse

HOSTILE = {
    "alias bomb": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    "anchor alone": "a: &a x",
    "python object": "a: !!python/object/apply:os.system ['true']",
    "explicit tag": "a: !!str 1",
    "deep nesting": "a: " + "[" * 12_000,
    "nine levels": "a: [[[[[[[[x]]]]]]]]",
    "two documents": "a: 1\n--- \nb: 2",
    "tab indent": "a:\n\tb: 1",
    "a key twice": "a: 1\na: 2",
    "17 KiB": "a: " + "x" * 17 * 1024,
    "unclosed quote": 'a: "x',
    "a list": "- a",
    "a scalar": "a",
    "a mapping as key": "{a: b}: c",
    "a control character": "a: \x01",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_front_matter_is_refused_quickly(source: str) -> None:
    started = time.process_time()
    with pytest.raises(FrontMatterError):
        parse(source)
    assert time.process_time() - started < 0.5


def test_twenty_thousand_keys_are_over_the_limit() -> None:
    with pytest.raises(FrontMatterError):
        parse("\n".join(f"k{number}: x" for number in range(20_000)))


def test_scalars_stay_what_was_written() -> None:
    source = "a: NO\nb: 2026-02-30\nc: " + "9" * 5000 + "\nd: 1e400\ne: ~\nf: 012\ng: 'quoted'"
    assert parse(source) == {"a": "NO", "b": "2026-02-30", "c": "9" * 5000, "d": "1e400", "e": "~", "f": "012", "g": "quoted"}


def test_nothing_between_the_fences_is_an_empty_mapping() -> None:
    assert parse("") == {}
    assert parse("# only a comment\n") == {}


def test_eight_levels_are_allowed() -> None:
    assert parse("a: [[[[[[[x]]]]]]]")
