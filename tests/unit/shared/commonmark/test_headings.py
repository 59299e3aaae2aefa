"""Headings and sections of notes; a whole parser is the judge of what is one."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from markdown_it import MarkdownIt

from shared.commonmark.headings import headings, section
from tests.unit.agent.test_citations_agree_with_a_parser import assume_no_difference, texts

PARSER = MarkdownIt("commonmark", {"maxNesting": 1000}).enable("table")
NOTE = (
    "---\ntitle: x\n---\n# One *two* ##\ntext\n```\n# code\n```\n<!--\n# comment\n-->\n> # quoted\n\n- # item\n\n"
    "Under\nlined\n---\n### Deep [link](x) `code`\n# one TWO\n\\# no\n#no\n####### no\n"
)


def test_headings_are_those_of_the_note_itself() -> None:  # MN-10
    found = headings(NOTE)
    assert [(one.level, one.text) for one in found] == [(1, "One two"), (2, "Under lined"), (3, "Deep link code"), (1, "one TWO")]
    lines = [NOTE[one.start :].split("\n", maxsplit=1)[0] for one in found]
    assert lines == ["# One *two* ##", "Under", "### Deep [link](x) `code`", "# one TWO"]
    assert [one.anchor for one in found] == ["One two", "Under lined", "Deep link code", "one-two-1"]


@pytest.mark.parametrize(
    ("fragment", "begin", "end"),
    [
        ("One two", "# One", "# one"),
        ("ＯＮＥ  two", "# One", "# one"),
        ("one-two", "# One", "# one"),
        ("one-two-1", "# one", None),
        ("Under lined", "Under\n", "# one"),
        ("under-lined", "Under\n", "# one"),
        ("One two#Deep link code", "### Deep", "# one"),
        ("One two#One two", "", ""),
        ("quoted", "", ""),
        ("code", "", ""),
        ("", "", ""),
    ],
)
def test_a_fragment_names_a_section(fragment: str, begin: str, end: str | None) -> None:
    found = section(NOTE, fragment)
    if not begin:
        assert found is None
        return
    assert found is not None
    assert NOTE[found.start : found.end].startswith(begin)
    assert found.end == (len(NOTE) if end is None else NOTE.index(end, found.start + 1))


def test_each_heading_is_found_by_its_anchor() -> None:
    content = "# A\n# a\n## A\n# a-1\n# A!\n"
    for one in headings(content):
        found = section(content, one.anchor)
        assert found is not None
        assert (found.anchor, found.start) == (one.anchor, one.start)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(texts())
def test_they_are_those_that_a_parser_finds(text: str) -> None:
    assume_no_difference(text)
    if re.match(r"\ufeff?---", text):
        return
    tokens = [token for token in PARSER.parse(text) if token.type == "heading_open" and token.level == 0]
    found = headings(text)
    assert [one.level for one in found] == [int(token.tag[1:]) for token in tokens]
    plain = text.replace("\r\n", " \n").replace("\r", "\n")
    assert [plain.count("\n", 0, one.start) for one in found] == [token.map[0] for token in tokens if token.map]
