"""Replacing one place of a note (MD-4)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.notes.patch import patch
from shared.contracts.errors import ErrorCode, ServiceError


def refused(data: bytes, old_text: str, code: ErrorCode) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        patch(data, old_text, "new")
    assert caught.value.code == code
    return caught.value


def test_one_place_changes_and_nothing_else() -> None:
    # MoonshotAI/kimi-cli#2191, mistralai/mistral-vibe#674
    data = "\ufeff---\r\ntitle: T\r\n---\r\nfirst line\nold mac\rword, ärger\r\nno final newline".encode()
    assert patch(data, "ärger", "Ärger") == data.replace("ärger".encode(), "Ärger".encode())
    assert patch(data, "\ufeff---", "---") == data[3:]
    assert patch(data, "no final newline", "") == data[: -len("no final newline")]


def test_a_text_that_is_not_there_or_there_twice_is_refused() -> None:
    # MD-4; jacksteamdev/obsidian-mcp-tools#83: text is matched, not headings
    refused(b"some text", "other", ErrorCode.MATCH_NOT_FOUND)
    assert refused(b"a b a b a", "a", ErrorCode.MATCH_NOT_UNIQUE).extra["matches"] == 3
    assert refused(b"aaa", "aa", ErrorCode.MATCH_NOT_UNIQUE).extra["matches"] == 2
    refused(b"some text", "", ErrorCode.INVALID)
    refused(b"", "x", ErrorCode.MATCH_NOT_FOUND)


@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        # a line feed finds what ends the lines there, and is written so
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\nb\nc\n", "a\nb", "x\ny", b"x\ny\nc\n"),
        (b"a\r\nb\nc\n", "a\nb", "x\ny", b"x\r\ny\nc\n"),
        # a word becomes lines: they end as the line does that it stood in, or the one before
        (b"word\r\nnext\n", "word", "one\ntwo", b"one\r\ntwo\r\nnext\n"),
        (b"first\r\nword", "word", "one\ntwo", b"first\r\none\r\ntwo"),
        (b"word", "word", "one\ntwo", b"one\ntwo"),
        # ends of the place
        (b"a\r\nb\r\n", "\nb", "\nc", b"a\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\n", "", b"b\r\n"),
        (b"a\r\n\r\nb", "\n\n", "\n", b"a\r\nb"),
        # a carriage return in either text: exact bytes
        (b"a\r\nb\n", "a\r\n", "a\n", b"a\nb\n"),
        (b"a\nb\n", "a\nb", "a\r\nb", b"a\r\nb\n"),
        (b"old\rmac\r", "old\rmac", "new\rmac", b"new\rmac\r"),
    ],
)
def test_line_endings(data: bytes, old: str, new: str, expected: bytes) -> None:
    assert patch(data, old, new) == expected


def test_an_exact_text_with_the_wrong_line_ending_is_not_found() -> None:
    refused(b"a\nb\n", "a\r\nb", ErrorCode.MATCH_NOT_FOUND)
    refused(b"a\rb\r", "a\nb", ErrorCode.MATCH_NOT_FOUND)


TEXT = st.text(st.sampled_from("ab\r\n\ufeffä𝒳"), max_size=30)


@given(before=TEXT, after=TEXT, new=st.text(st.sampled_from("xy\n"), max_size=5))
def test_what_is_outside_the_place_stays_byte_for_byte(before: str, after: str, new: str) -> None:
    data = f"{before}§{after}".encode()
    changed = patch(data, "§", new)
    assert changed.startswith(before.encode())
    assert changed.endswith(after.encode())
    middle = changed[len(before.encode()) : len(changed) - len(after.encode())]
    assert middle in (new.encode(), new.replace("\n", "\r\n").encode())


@given(before=TEXT, place=st.text(st.sampled_from("§\n"), min_size=1, max_size=6), after=TEXT)
def test_the_place_is_found_whatever_ends_its_lines(before: str, place: str, after: str) -> None:
    data = f"{before}<{place}>{after}".replace("\n", "\r\n").encode()
    bare = re.sub("\r\n", "\n", data.decode())
    if bare.count(f"<{place}>") == 1:
        changed = patch(data, f"<{place}>", "!")
        assert changed.decode() == data.decode().replace(f"<{place}>".replace("\n", "\r\n"), "!")


def test_a_word_in_five_megabytes_with_crlf_and_a_byte_order_mark() -> None:
    line = "Ein Satz über nichts, 五个字。\r\n".encode()
    half = line * (2_500_000 // len(line))
    data = b"\xef\xbb\xbf" + half + b"the word\r\n" + half
    changed = patch(data, "the word", "a phrase")
    assert len(changed) == len(data)
    differing = [index for index, (one, other) in enumerate(zip(data, changed, strict=True)) if one != other]
    start = 3 + len(half)
    assert set(differing) <= set(range(start, start + len(b"the word")))


@pytest.mark.timeout(20)
def test_hostile_texts_are_searched_in_linear_time() -> None:
    data = b"a\r\n" * 2_000_000
    refused(data, "a\n" * 200_000 + "b", ErrorCode.MATCH_NOT_FOUND)
    refused(data, "a\n" * 200_000, ErrorCode.MATCH_NOT_UNIQUE)
    refused(b"a" * 8_000_000, "a" * 400_000 + "b", ErrorCode.MATCH_NOT_FOUND)
