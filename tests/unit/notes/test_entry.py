"""Exchanges written into notes (MN-9)."""

from collections.abc import Callable
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from services.notes import entry as entry_module
from services.notes.entry import Entry
from shared.contracts.exchanges import begin_mark, end_mark, exchanges
from shared.contracts.front_matter import split

ID = UUID("0f8c2b1e-5d0a-4a53-9d2c-6f7f7f3c2b11")


def entry(question: str = "Why?", answer: str = "So.", title: str = "A talk", message_id: UUID = ID) -> Entry:
    return Entry(message_id, title, question, answer)


def test_an_exchange_as_it_stands_in_a_note() -> None:
    assert entry().appended_to("# Note\n\nText.\n") == (
        f"# Note\n\nText.\n\n<!-- marginalia:exchange {ID} -->\n## A talk\n\n**Question**\n\nWhy?\n\n**Answer**\n\nSo.\n\n"
        f"<!-- /marginalia:exchange {ID} -->\n"
    )
    assert "**提问**\n\n为什么？\n\n**回答**\n\n" in entry("为什么？").appended_to("")


@given(content=st.text(max_size=60), question=st.text(min_size=1, max_size=60), answer=st.text(min_size=1, max_size=60))
def test_texts_are_copied_byte_for_byte_and_the_note_stays_as_it_was(content: str, question: str, answer: str) -> None:
    # CherryHQ/cherry-studio#12679, #10370
    written = entry(question, answer).appended_to(content)
    assert written.startswith(content)
    assert f"\n{question}" in written
    assert f"\n{answer}" in written
    assert entry().is_in(written)
    assert [(found.message_id, found.end) for found in exchanges(written)] == [(ID, len(written))]


@pytest.mark.parametrize(
    "content", ["", "\ufeff", "text", "text\n", "text\n\n", "text\r\n", "text\r\n\r\n", "---\r\ntitle: T\r\n---", "```\nclosed\n```"]
)
def test_it_begins_on_a_line_of_its_own_and_ends_lines_as_the_note_does(content: str) -> None:
    # logancyang/obsidian-copilot#1438
    written = entry("one\ntwo").appended_to(content)
    added = written.removeprefix(content)
    newline = "\r\n" if "\r\n" in content else "\n"
    assert added.lstrip("\r\n").startswith(begin_mark(ID) + newline)
    assert not content.strip("\ufeff") or (content + added[: len(added) - len(added.lstrip("\r\n"))]).endswith(2 * newline)
    assert "one\ntwo" in added
    assert entry().is_in(written)
    assert added.replace("one\ntwo", "").replace("\r\n", "").count("\n") == (0 if newline == "\r\n" else added.count("\n") - 1)


@pytest.mark.parametrize(
    "text", ["```python\ncode", "~~~~\ncode\n```", "- item\n\n  ```\n  code", "text\n\n```\ndone\n```", "<!-- open", "> ```\n> code"]
)
def test_a_fence_that_a_text_leaves_open_does_not_swallow_what_follows(text: str) -> None:
    # logancyang/obsidian-copilot#1438
    written = entry("Why?", text).appended_to("") + "\nThe user writes on.\n"
    tokens = MarkdownIt("commonmark").parse(written)
    assert tokens[-2].content == "The user writes on."
    assert text in written


def test_a_title_is_one_line_of_plain_text() -> None:
    written = entry(title="# a [b](c)\n --> #tag `x` <b>").appended_to("")
    tokens = MarkdownIt("commonmark").parse(written)
    heading = next(token for before, token in pairwise(tokens) if before.tag == "h2")
    assert "".join(child.content for child in heading.children or []) == "# a [b](c) --> #tag `x` <b>"


def test_an_exchange_is_known_by_its_message() -> None:
    written = entry().appended_to("")
    assert entry("other", "texts").is_in(written)
    assert not entry(message_id=uuid4()).is_in(written)


def test_a_quoted_exchange_is_part_of_the_one_that_quotes_it() -> None:
    inner = entry().appended_to("")
    outer = uuid4()
    written = entry("What did I write?", inner, message_id=outer).appended_to("") + "after\n"
    assert [found.message_id for found in exchanges(written)] == [outer]
    assert written[next(exchanges(written)).end :] == "after\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda first, second: first.replace(end_mark(ID), "") + second,
        lambda first, second: first + second.replace("So.", f"The mark is\n{end_mark(ID)}\nas you see."),
        lambda first, second: first + second + "my own words\n\n" + first,
        lambda first, second: first.replace(end_mark(ID), "") + second + first,
        lambda first, second: f"```\n{first}{second}```\n",
        lambda first, second: first + "".join(f"  {line}" for line in second.splitlines(keepends=True)),
        lambda first, second: first + "".join(f"> {line}" for line in second.splitlines(keepends=True)),
        lambda first, second: first + second.replace("\n", "\r\n"),
        lambda first, second: first + second.replace(" -->\n", " --> and more\n", 1),
    ],
    ids=[
        "end removed",
        "end quoted",
        "pasted twice",
        "end removed, pasted",
        "in code",
        "indented",
        "quoted",
        "other line ends",
        "not alone on its line",
    ],
)
def test_an_exchange_is_known_wherever_its_begin_mark_stands(change: Callable[[str, str], str]) -> None:
    second = entry(message_id=uuid4())
    assert second.is_in(change(entry().appended_to(""), second.appended_to("")))


def test_an_exchange_that_another_one_quotes_is_not_there_yet() -> None:
    second = entry("What was that?", "It was this.", message_id=uuid4())
    written = entry("Show me the note.", f"It says:\n\n{second.appended_to('')}\nThat is all.").appended_to("# Note\n")
    assert not second.is_in(written)
    assert second.is_in(second.appended_to(written))
    assert second.is_in(written.replace(f"{end_mark(ID)}\n", ""))


OPEN = {
    "fence": "# T\n\n```py\ncode", "fence and line": "```\ncode\n", "tildes": "~~~~\nx\n~~~", "comment": "text\n\n<!-- open\nmore\n",
    "comment in text": "text <!-- open", "pre": "<pre>\nx", "PRE": " <PRE class='a'>\nx\n\ny", "script": "<script>\nx", "style": "<style>",
    "textarea": "<textarea>\n\n", "cdata": "<![CDATA[\nx", "instruction": "<?php\nx", "declaration": "<!DOCTYPE html", "div": "<div>\nx",
    "fence in list": "- ```\n  x", "fence in quote": "> ```\n> x", "after front matter": "---\ntitle: T\n---\n```\nx",
    "front matter that is open": "---\ntitle: x", "fence after a byte order mark": "\ufeff```\nx", "lines": "```\r\nx\r\n",
    "closed": "```\nx\n```\n\n<pre>\nx\n</pre>\n", "backticks in text": "a ```b``` c", "link definition": "[a]: /x\n'open",
    "heading": "Title",
}  # fmt: skip


@pytest.mark.parametrize(
    ("before", "text"), [*((before, "So *it* is.") for before in OPEN.values()), *(("", text) for text in OPEN.values())]
)
def test_what_a_note_or_a_text_leaves_open_swallows_nothing(before: str, text: str) -> None:
    written = entry(text, text).appended_to(before) + "\nThe user writes on.\n"
    assert written.startswith(before)
    assert written.count(text) >= 2
    body = split(written).body
    html = MarkdownIt("commonmark").render(body)
    assert html.index("<h2>A talk</h2>") < html.index("<p><strong>Question</strong></p>") < html.index("<p><strong>Answer</strong></p>")
    assert html.endswith("<p>The user writes on.</p>\n")
    if before in (OPEN["closed"], OPEN["backticks in text"], OPEN["div"]):
        assert written.removeprefix(before).lstrip().startswith(begin_mark(ID))


LINES = ["```", "~~~", "````", "<!--", "-->", "<pre>", "</pre>", "<?", "?>", "<![CDATA[", "]]>", "<script>", "</style>", "<!A", ">", "- ",
         "1. ", "> ", "    ", " ", "\t", "x", "# h", "<div>", "`", "|", "[a]: b",
         "\u00a0", "\n", "\n", "\n\n", "\r\n", "\r", "\r\n\r\n"]  # fmt: skip


@given(st.lists(st.sampled_from(LINES), max_size=25).map("".join))
def test_what_a_long_note_leaves_open_is_found_without_reading_it_whole(text: str) -> None:
    assert entry_module._open_end(text) == entry_module._end_of(text)


def test_of_a_long_note_little_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = 0
    end_of = entry_module._end_of

    def counting(part: str) -> str | None:
        nonlocal parsed
        parsed += len(part)
        return end_of(part)

    monkeypatch.setattr(entry_module, "_end_of", counting)
    chapter = "# Chapter\n\nWords, ```code``` and more.\n\n```py\nx = 1\n\n- y\n```\n\n<!-- a\n\nb -->\n\n- a\n\n  ```\n  b\n  ```\n\n"
    long = (chapter + "Words and words.\n\n" * 200) * 300
    assert entry_module._open_end(long) is None
    assert entry_module._open_end(f"{long}~~~\n{long.replace('~', '')}") == "~~~"
    assert parsed < len(long) / 10


def test_a_text_that_looks_like_the_end_does_not_end_it() -> None:
    written = entry("Why?", f"So.\n{end_mark(ID)}\n\nand more").appended_to("")
    assert [(found.start, found.end) for found in exchanges(written)] == [(0, len(written))]


def test_an_exchange_without_its_end_reaches_to_the_end_of_the_note() -> None:
    written = entry().appended_to("before\n").replace(end_mark(ID), "")
    assert [(found.start, found.end) for found in exchanges(written)] == [(written.index("<!--"), len(written))]


@pytest.mark.parametrize(
    "line", [f"text {begin_mark(ID)}", f"{begin_mark(ID)} text", f"    {begin_mark(ID)}", "<!-- marginalia:exchange x -->"]
)
def test_only_a_line_of_its_own_is_a_mark(line: str) -> None:
    assert list(exchanges(f"{line}\n")) == []
