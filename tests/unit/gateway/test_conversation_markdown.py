"""A conversation as a document: what names and texts may hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from services.gateway.conversation_markdown import closed, escaped

ALPHABET = "ab1 \n\t`~*_[]()<>!#|\\$=%@:.-+>&;/\"'www.é中"


@given(st.text(ALPHABET, max_size=40))
def test_a_name_is_shown_as_it_is_by_any_reader(name: str) -> None:
    (_, inline, _) = MarkdownIt("commonmark").parse(f"# x{escaped(name)}x")
    assert {child.type for child in inline.children or []} <= {"text", "text_special"}
    assert "".join(child.content for child in inline.children or []) == f"x{' '.join(name.split())}x"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("```\ncode", "\n```"),
        ("~~~~ py\n```\ncode", "\n~~~~"),
        ("<!-- note", "\n-->"),
        ("<script>\n\nx", "\n</script>"),
        ("<pre>\n\nx", "\n</pre>"),
        ("<?php", "\n?>"),
        ("<![CDATA[ x", "\n]]>"),
        ("<!DOCTYPE", "\n>"),
        # closed already, or by what follows
        ("```\ncode\n```", ""),
        ("- ```\n  code", ""),
        ("> ```\n> code", ""),
        ("a ``` b", ""),
        ("<div>\nx", ""),
        ("1 < 2", ""),
        ("", ""),
    ],
)
def test_a_block_that_a_text_leaves_open_is_closed(text: str, end: str) -> None:
    assert closed(text) == text + end


@given(st.lists(st.sampled_from(["```", "~~~", "<!--", "-->", "<pre>", "x", "", "- ", "> ", "    y", "<?", "`"]), max_size=8))
def test_whatever_a_text_holds_the_heading_after_it_is_one(lines: list[str]) -> None:
    text = "\n".join(lines)
    tokens = MarkdownIt("commonmark").parse(f"{closed(text)}\n\n## next")
    assert [token.type for token in tokens[-3:]] == ["heading_open", "inline", "heading_close"]
    assert closed(text).startswith(text)
