"""How notes are cut."""

import itertools
import time
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.retrieval.chunking import MAXIMUM, Chunk, chunk_note, is_withdrawn
from shared.contracts.exchanges import begin_mark, end_mark

DOCUMENT = UUID(int=1)


def cut(content: str) -> list[Chunk]:
    chunks = chunk_note(DOCUMENT, content)
    for number, chunk in enumerate(chunks):
        assert content[chunk.start : chunk.end] == chunk.text
        assert content.startswith(chunk.text, chunk.start)
        assert chunk.ordinal == number
        assert chunk.text.strip()
    assert all(one.end <= other.start for one, other in itertools.pairwise(chunks))
    return chunks


def test_a_chunk_never_crosses_a_heading_and_knows_the_headings_above() -> None:
    chunks = cut("intro\n\n# A *b*\n\none\n\n## C `d` [e](f)\n\ntwo\n\n# G\n\nthree\n")
    assert [(chunk.heading_path, chunk.text) for chunk in chunks] == [
        ((), "intro"),
        (("A b",), "one"),
        (("A b", "C d e"), "two"),
        (("G",), "three"),
    ]


def test_underlined_headings_count_and_hashes_in_code_do_not() -> None:
    chunks = cut("Title\n=====\n\n```\n# no heading\n```\n\n    # nor this\n")
    assert [chunk.heading_path for chunk in chunks] == [("Title",)]


def test_a_heading_with_nothing_below_is_its_own_text() -> None:
    assert [chunk.text for chunk in cut("# A\n\n## B\n\n## C\n\ntext\n\n# D")] == ["## B", "text", "# D"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_offsets_are_right_with_any_line_ending_and_a_byte_order_mark(newline: str) -> None:
    content = "\ufeff" + newline.join(["---", "title: x", "---", "# Ä", "", "数据 one", "two", "", "- a", "- b", ""])
    chunks = cut(content)
    assert [chunk.heading_path for chunk in chunks] == [("Ä",)]
    assert chunks[0].text == newline.join(["数据 one", "two", "", "- a", "- b"])


@pytest.mark.parametrize(
    "content", ["---\ntitle: Heron\n---\n", "\ufeff---\r\ntitle: Heron\r\n---\r\n\r\n---\r\n", "---\rtitle: Heron\r---"]
)
def test_of_a_note_that_is_nothing_else_the_front_matter_is_the_text(content: str) -> None:
    (chunk,) = cut(content)
    assert (chunk.text, chunk.heading_path) == ("title: Heron", ())


def test_front_matter_that_is_all_of_a_note_is_cut_between_lines() -> None:
    lines = [f"key{number}: a value" for number in range(300)]
    chunks = cut("\n".join(["---", *lines, "---", ""]))
    assert [line for chunk in chunks for line in chunk.text.split("\n")] == lines
    assert cut("---\n \n---\n") == []


def test_front_matter_is_no_text_and_a_rule_is_no_front_matter() -> None:
    assert [chunk.text for chunk in cut("---\na: b\n---\ntext")] == ["text"]
    assert [chunk.text for chunk in cut("---\n---\ntext")] == ["text"]
    assert [chunk.text for chunk in cut("text\n\n---\n\nmore")] == ["text\n\n---\n\nmore"]


def test_code_and_tables_are_kept_whole_where_they_fit() -> None:
    code = "```python\n" + "x = 1\n\n" * 150 + "```"
    table = "| a | b |\n|---|---|\n" + "| one | two |\n" * 80
    chunks = cut(f"before\n\n{code}\n\nbetween\n\n{table}\nafter")
    assert any(chunk.text == code for chunk in chunks)
    assert any(table.strip() in chunk.text for chunk in chunks)


def test_what_is_too_long_is_cut_between_lines_or_items() -> None:
    code = "```\n" + "".join(f"line {number} of the code\n" for number in range(300)) + "```"
    chunks = cut(code)
    assert len(chunks) > 1
    assert all(len(chunk.text) <= MAXIMUM for chunk in chunks)
    assert all(chunk.text.startswith(("```", "line ")) for chunk in chunks)
    items = cut("\n".join(f"- item {number} with some words\n  and a second line" for number in range(200)))
    assert all(chunk.text.startswith("- item") for chunk in items)


def test_one_endless_line_is_cut_at_its_stops() -> None:
    chunks = cut("这是一个很长的句子，没有换行。" * 500)
    assert all(len(chunk.text) <= MAXIMUM for chunk in chunks)
    assert all(chunk.text.endswith("。") for chunk in chunks)
    assert sum(len(chunk.text) for chunk in cut("x" * 10_000)) == 10_000


def test_unchanged_neighbours_keep_their_block_ids() -> None:
    before = {chunk.text: chunk.block_id for chunk in cut("# A\n\none\n\n# B\n\ntwo\n\n# C\n\nthree")}
    after = {chunk.text: chunk.block_id for chunk in cut("new\n\n# A\n\nchanged\n\n# B\n\ntwo\n\n# C\n\nthree")}
    assert (before["two"], before["three"]) == (after["two"], after["three"])
    assert before["one"] not in after.values()


def test_equal_passages_have_ids_of_their_own() -> None:
    chunks = cut("# A\n\nsame\n\n# A\n\nsame\n\n# B\n\nsame")
    assert len({chunk.block_id for chunk in chunks}) == 3


@pytest.mark.parametrize(
    ("content", "withdrawn"),
    [
        ("---\nretrieval: false\n---\nx", True),
        ("\ufeff---\r\ntitle: a\r\nretrieval: No # never\r\n---\r\nx", True),
        ('---\nretrieval: "false"\n---', True),
        ("---\nretrieval: true\n---\nx", False),
        ("---\nnested:\n  retrieval: false\n---\nx", False),
        ("retrieval: false\n", False),
        ("---\nretrieval: falsehood\n---\n", False),
    ],
)
def test_withdrawal_is_said_in_the_front_matter(content: str, withdrawn: bool) -> None:  # RC-19
    assert is_withdrawn(content) is withdrawn


def test_what_stands_between_two_rules_or_behind_a_forgotten_end_is_found() -> None:
    for content in ("---\n\nBefore.\n\n---\n\nAfter.\n", "---\ntitle: x\n\nBefore.\n\n---\nAfter.\n"):
        assert "Before." in "".join(chunk.text for chunk in cut(content))


MESSAGE = UUID("0f8c2b1e-5d0a-4a53-9d2c-6f7f7f3c2b11")


def exchange(text: str) -> str:
    return f"{begin_mark(MESSAGE)}\n{text}\n{end_mark(MESSAGE)}\n"


def test_an_exchange_is_cut_by_itself_and_marked() -> None:  # MN-9
    content = f"# Note\n\nMine before.\n{exchange('## Talk\n\nAn answer.\n\n# Its heading\n\nMore.')}Mine after.\n\n## Mine too\n\nLast.\n"
    assert [(chunk.text, chunk.heading_path, chunk.exchange) for chunk in cut(content)] == [
        ("Mine before.", ("Note",), False),
        ("An answer.", ("Note", "Talk"), True),
        ("More.", ("Its heading",), True),
        ("Mine after.", ("Note",), False),
        ("Last.", ("Note", "Mine too"), False),
    ]


@pytest.mark.parametrize("text", ["```\nopen fence", "<!-- open comment", "- list", "| a |\n|---|", f"quoted\n{end_mark(MESSAGE)}\nstill"])
def test_no_chunk_holds_both_an_exchange_and_the_note(text: str) -> None:
    chunks = cut(f"before\n\n{exchange(text)}\nafter\n")
    assert (chunks[0].text, chunks[-1].text) == ("before", "after")
    assert [chunk.exchange for chunk in chunks] == [False, *[True] * (len(chunks) - 2), False]
    assert all("marginalia:exchange" not in chunk.text for chunk in chunks if not chunk.exchange)


def test_an_exchange_may_be_all_of_a_note_or_lie_behind_front_matter() -> None:
    for before in ("", "\ufeff", "---\ntitle: T\n---\n"):
        assert [(chunk.text, chunk.exchange) for chunk in cut(before + exchange("An answer."))] == [("An answer.", True)]


HOSTILE = {
    "brackets": "[" * 1_000_000,
    "quotes": ">" * 1_000_000,
    "bars": "|" * 1_000_000,
    "backticks": "`" * 1_000_000,
    "bullets in bullets": "* " * 500_000,
    "one line": "x" * 1_000_000,
    "ever deeper": "\n".join("> " * depth for depth in range(1000)),
    "wide table": "|a" * 500 + "|\n" + "|-" * 500 + "|\n" + ("|" * 500 + "\n") * 500,
    "comments": "<!--" * 250_000,
    "front matter without an end": "---\n" + "a: b\n" * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_notes_take_linear_time(name: str) -> None:
    content = HOSTILE[name]
    # Four times the note: four times the work, and no sixteen. Short runs are noise, and a machine may be slower for a while.
    assert any(_seconds(content) < max(8 * _seconds(content[: len(content) // 4]), 0.5) for _ in range(6))


def _seconds(content: str) -> float:
    """Of the processor: whatever else the machine does is not in it, but it may be slower for a moment."""
    began = time.process_time()
    cut(content)
    return time.process_time() - began


def test_a_long_note_is_cut_like_a_short_one() -> None:
    section = "# Part\n\n" + "Some words of text. " * 20 + "\n\n```\ncode\n\n# no heading\n```\n\n"
    chunks = cut(section * 1000)
    assert {chunk.heading_path for chunk in chunks} == {("Part",)}
    assert len({chunk.text for chunk in chunks}) <= 2


MARKDOWN = st.text(alphabet=st.sampled_from(list("#-*>|`~ \t\n\rab数\ufeff[]().:+1\\<!=_")), max_size=300)


@settings(max_examples=300, deadline=None)
@given(MARKDOWN)
def test_whatever_the_note_the_chunks_are_its_slices(content: str) -> None:
    cut(content)
