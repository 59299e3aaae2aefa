"""Titles and tags."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.notes.metadata import TITLE_CHARACTERS_MAX, extract, tag_keys


def title(text: str, name: str = "file name.md") -> str:
    return extract(text, name).title


def tags(text: str) -> list[str]:
    return extract(text, "n.md").tags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\ntitle: Front\n---\n# Heading\n", "Front"),
        ("---\ntitle: ''\n---\n# Heading\n", "Heading"),
        ("---\ntitle: [a]\n---\n# Heading\n", "Heading"),
        ("---\ntitle: 2026-02-30\n---\n", "2026-02-30"),
        ('---\ntitle: "\\0x"\n---\n# Heading\n', "Heading"),
        ("---\ntitle: a: b\n---\n# Heading\n", "Heading"),
        # A rule, or front matter whose end was forgotten: the heading is no comment in it.
        ("---\n\n# Heading\n\n---\n", "Heading"),
        ("---\ntags: a\n\n# Heading\n\nText.\n---\nmore\n", "Heading"),
        ("text\n\n# Heading ##\n# Second\n", "Heading"),
        ("#no heading\n\n## Level two\n\n   # Three spaces\n", "Three spaces"),
        ("```\n# code\n```\n~~~~ sh\n```\n# code\n~~~\n~~~~\n# Real\n", "Real"),
        ("    # indented code\n\n# Real\n", "Real"),
        ("Setext\n===\n", "Setext"),
        ("two\nlines\n=\n", "two lines"),
        ("Setext\r\n  === \r\n", "Setext"),
        ("# Of a Mac\r\rtext\r", "Of a Mac"),
        ("text\n==\n#tag and # no heading\n", "text"),
        ("- item\n===\n\n# Real\n", "Real"),
        ("# \n#\n# Real\n", "Real"),
        ("# **Bold** `code` [link](x.md) snake_case\n", "Bold code link snake_case"),
        ("# C# and F#\n", "C# and F#"),
        ("\ufeff# 中文标题\r\n", "中文标题"),
        ("nothing\n", "file name"),
        ("", "file name"),
        ("```\n# never closed\n", "file name"),
    ],
)
def test_the_title_is_front_matter_then_heading_then_file_name(text: str, expected: str) -> None:
    assert title(text) == expected


def test_a_file_name_keeps_its_dots() -> None:
    assert title("", "v1.2 notes.markdown") == "v1.2 notes"


@pytest.mark.parametrize(
    ("matter", "expected"),
    [
        ("tags: [a, '#b', c d, '', a, A]", ["a", "b", "c d"]),
        ("tags: a, b c", ["a", "b", "c"]),
        ("tags: '#a #b/c'", ["a", "b/c"]),
        ("tags:\n  - 2024\n  - {x: y}", ["2024"]),
        ("tags: {a: b}", []),
        ("tags:", []),
        ("tags: [a\n", []),
    ],
)
def test_front_matter_tags(matter: str, expected: list[str]) -> None:
    assert tags(f"---\n{matter}\n---\n") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a #tag and #nested/tag_1-x.", ["tag", "nested/tag_1-x"]),
        ("#start\n## Heading with #inside\n# Title", ["start", "inside"]),
        ("#标签，后面 （#括号） 、#顿号", ["标签", "括号", "顿号"]),
        ("(#bracketed) and x#no and ##no and #", ["bracketed"]),
        ("#1984 #y1984 #2024-01 #---", ["y1984", "2024-01"]),
        ("`#code` ``a ` #code`` #real `open #also", ["real", "also"]),
        ("`spans\nlines #code`", []),
        ("```\n#code\n```\n~~~\n#code\n~~~\n#real", ["real"]),
        ("> ```\n> #code\n> ```\n> #real", ["real"]),
        ("- x\n\n    #in-list\n", ["in-list"]),
        ("text\n\n    #code\n\n    #code\n\n#real", ["real"]),
        ("[text #no](target#no) [ref #no][id] [[note#no]] [[#no]] <https://x.y/#no> https://x.y/#no", []),
        ("[a [b]](#no)", []),
        ("[[note]](#behind)", ["behind"]),
        ("no heading\r\n\u2003#wide", ["wide"]),
        ("# Title\n\ntext\n\nlater #tag", ["tag"]),
        ("#Tag #tag #TAG", ["Tag"]),
        ("#a/ #/b", ["a", "b"]),
        ("#cafe\u0301", ["caf\u00e9"]),
    ],
)
def test_inline_tags_stand_outside_code_and_links(text: str, expected: list[str]) -> None:
    assert tags(text) == expected


def test_front_matter_and_inline_tags_are_joined() -> None:
    assert tags("---\ntags: [a]\n---\n#b #A") == ["a", "b"]


def test_a_nested_tag_is_found_by_those_above_it() -> None:
    assert tag_keys(["A/B/c", "x", "a/d"]) == ["a", "a/b", "a/b/c", "x", "a/d"]


@pytest.mark.parametrize(
    "unit", ["#", "`", "[", "[a](", "[[", "<", "``` ", "#a ", "` `` ", "- ", "> ", "![", "(", "](#", "=\n", "#\n", "a\n=", "\u0301"]
)
def test_hostile_text_takes_no_longer_than_other_text(unit: str) -> None:
    text = "# t\n" + unit * (400_000 // len(unit)) + " #end"
    started = time.process_time()
    extract(text, "n.md")
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text", ["#" + "a" * 3000, "#" + "a/" * 100 + "a", '---\ntags: ["\\ud800", "\\0"]\n---\n', "---\ntags: [" + "b" * 3000 + "]\n---\n"]
)
def test_what_no_index_can_hold_is_no_tag(text: str) -> None:
    assert tags(text) == []


@given(st.one_of(st.text(), st.from_regex(r"(---\n)?(title: |tags: |# |#|`{1,3}|\[|\(|/|é|中|\n|\\|\"|\ud7ff){0,60}")))
def test_any_text_has_a_title_and_tags_that_can_be_stored(text: str) -> None:
    found = extract(text.encode("utf-8", "ignore").decode().replace("\0", ""), "name.md")
    assert found.title
    assert len(found.title) <= TITLE_CHARACTERS_MAX
    for value in (found.title, *found.tags, *tag_keys(found.tags)):
        assert value.encode()
        assert "\0" not in value
