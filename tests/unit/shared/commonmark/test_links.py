"""Which links of a text count, and where they lead; a whole parser is the judge."""

import pytest
from hypothesis import HealthCheck, given, settings
from markdown_it import MarkdownIt

from shared.commonmark.links import destinations
from tests.unit.agent.test_citations_agree_with_a_parser import assume_no_difference, texts

PARSER = MarkdownIt("commonmark", {"maxNesting": 1000, "store_labels": True}).enable("table")
PARSER.normalizeLink = lambda url: url  # type: ignore[method-assign]
PARSER.validateLink = lambda url: True  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("引用笔记 [标题](notes/x.md)", ["notes/x.md"]),
        ("[A \\] title](<a b.md>) and [again](a%20b.md 'title')", ["a b.md", "a%20b.md"]),
        ("`[x](a.md)` and\n\n```\n[y](b.md)\n```\n\n    [z](c.md)", []),
        ("![image](a.md) <a.md> plain a.md <b title='[x](c.md)'>", []),
        ("[![image](a.png)](x.md) ![[inner](a.md)](b.png)", ["x.md"]),
        ("[by label][1] [1] [x](y.md)\n\n[1]: a.md", ["y.md"]),
        ("\\[x](a.md) \\![y](b.md) [z\\](c.md)", ["b.md"]),
        ("[x](a\\(b&amp;c&#41;&#x64;&nosuch;.md)", ["a(b&c)d&nosuch;.md"]),
        ("> - [x](a.md)\n\n| [y](b.md) |\n|-|\n| [z](c.md) |", ["a.md", "b.md", "c.md"]),
        ("[x]()", []),
        ("<!-- [x](a.md) -->\n<div>\n[y](b.md)\n</div>", []),
    ],
)  # fmt: skip
def test_inline_links_that_a_reader_sees_count(text: str, found: list[str]) -> None:  # MN-3, MN-6
    assert list(destinations(text)) == found


def seen_by_a_parser(text: str) -> list[str]:
    found = []
    for token in PARSER.parse(text):
        links = [child for child in token.children or [] if child.type == "link_open" and child.markup != "autolink"]
        found += [str(link.attrGet("href")) for link in links if "label" not in link.meta]
    return [destination for destination in found if destination]


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(texts())
def test_they_are_those_that_a_parser_finds(text: str) -> None:
    assume_no_difference(text)
    assert list(destinations(text)) == seen_by_a_parser(text)
