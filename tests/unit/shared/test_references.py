"""References: what is written is read back, by other parsers than ours, too; and what leads out of every workspace is none."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from shared import references
from shared.commonmark.links import destinations
from shared.references import Reference, from_destination, from_ref, line, link, located, of_note


@dataclass(frozen=True)
class Place:
    directory: str
    notes_dir: str = ""


def parsers() -> list[MarkdownIt]:
    """CommonMark, and GitHub's kind with tables, strikethrough and the like."""
    found = [MarkdownIt("commonmark"), MarkdownIt("gfm-like", {"linkify": False, "html": True})]
    for parser in found:
        # Normalising is what a page does with an address; encoding once more is undone by decoding once.
        parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
        parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return found


PARSERS = parsers()


def read(parser: MarkdownIt, text: str) -> tuple[str, str]:
    """Text and destination of the one link that the line ends with."""
    _, inline, _ = parser.parse(text)
    children = inline.children or []
    (opening,) = [at for at, child in enumerate(children) if child.type == "link_open"]
    assert children[-1].type == "link_close"
    assert {child.type for child in children[opening + 1 : -1]} <= {"text"}
    return "".join(child.content for child in children[opening + 1 : -1]), str(children[opening].attrGet("href"))


HOSTILE = [
    *"ab cC#%&;()[]<>\\`*_~!$^|=:@.'\"{}?+-\n\r\t\x01\x0b\x0c\x1c\x7f\x85\u2028\u202e\u200b\u200d\u3000\xa0水笔記é\u0301😀\ufeff\ufffe",
    *("&amp;", "&#10;", "&lt", "www.", "http://", "](", "![", ".md", ".md#", "%20", "%2F", "..", "\ufdd0", "\U0001fffe", "\ue000", "a@b.c"),
]
TEXTS = st.lists(st.one_of(st.sampled_from(HOSTILE), st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=14).map(
    "".join
)
NAMES = TEXTS.map(lambda text: text.replace("/", "")).filter(lambda text: text not in ("", ".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join).map(lambda path: path + ".md")
REFERENCES = st.builds(Reference, st.none() | NAMES, PATHS, st.none() | TEXTS.filter(bool))


@given(TEXTS, REFERENCES, st.sampled_from(["zh", "en"]))
def test_any_title_and_any_path_are_read_back_by_any_parser(title: str, reference: Reference, locale: references.Locale) -> None:  # MN-4
    # flowershow/flowershow#692, juspay/olai#298
    for in_session in {True, reference.directory is None}:
        written = line(title, reference, locale, in_session=in_session)
        assert not set(written) & set("\n\r")
        for parser in PARSERS:
            text, destination = read(parser, written)
            assert (text, from_destination(destination)) == (title, reference)
        assert [from_destination(found) for found in destinations(written)] == [reference]
        assert reference in from_ref(reference.ref(in_session=in_session))


@given(NAMES, NAMES | st.just(""), PATHS, st.booleans())
def test_a_note_is_found_again_where_its_reference_leads(directory: str, notes_dir: str, path: str, own: bool) -> None:  # MN-3
    place, other = Place(directory, notes_dir), Place(directory + "'", notes_dir)
    session = place if own else other
    reference = of_note(place, path, session)
    assert (reference.directory is None) == own
    (destination,) = destinations(link("T", reference, in_session=True))
    read_back = from_destination(destination)
    assert read_back is not None
    assert located(read_back, session, [other, place]) == (place, references.nfc(path))


@pytest.mark.parametrize(
    ("title", "written"),
    [
        ("Plain title, 中文: 100% of it!", "Plain title, 中文: 100% of it!"),
        ("[a](b)", "\\[a\\](b)"),
        ("snake_case _x_ *y*", "snake_case \\_x\\_ \\*y\\*"),
        ("two\nlines", "two&#10;lines"),
        ("x\u202ey", "x&#8238;y"),
        ("\\", "\\\\"),
        ("a &amp; b & c", "a \\&amp; b & c"),
        ("NUL\0", "NUL\ufffd"),
        ("👩\u200d👩", "👩\u200d👩"),
    ],
)  # fmt: skip
def test_only_what_means_something_is_escaped(title: str, written: str) -> None:
    assert references.escaped(title) == written


@pytest.mark.parametrize(
    ("destination", "reference"),
    [
        ("notes/x.md", Reference(None, "notes/x.md")),
        ("./notes/../x.md#heading", Reference(None, "x.md", "heading")),
        ("../other/notes/x.md", Reference("other", "notes/x.md")),
        ("a/b/../../../other/x.md", Reference("other", "x.md")),
        ("/other/x.MD", Reference("other", "x.MD")),
        ("x.markdown", Reference(None, "x.markdown")),
        ("C# basics.md", Reference(None, "C# basics.md")),
        ("C%23%20basics.md#A%23B", Reference(None, "C# basics.md", "A#B")),
        ("100%.md", Reference(None, "100%.md")),
        ("a%2520b.md", Reference(None, "a%20b.md")),
        ("x.md#", Reference(None, "x.md")),
        ("a\\b.md", Reference(None, "a\\b.md")),
        ("../../etc/passwd.md", None),
        ("..%2f..%2fetc/passwd.md", None),
        ("%2e%2e/%2e%2e/etc/passwd.md", None),
        ("/../x.md", None),
        ("/other/../../x.md", None),
        ("../x.md", None),
        ("/x.md", None),
        ("x.txt", None),
        ("x%ff.md", None),
        ("x%00.md", None),
        ("http://x/y.md", None),
        ("javascript:x.md", None),
        ("//host/x.md", None),
        (".md/", None),
        ("x.md/..", None),
        ("", None),
    ],
)
def test_a_link_leads_to_a_note_of_a_workspace_or_to_none(destination: str, reference: Reference | None) -> None:  # MN-3
    assert from_destination(destination) == reference


def test_equal_spellings_are_one_reference() -> None:
    spelled = [Reference(None, "é.md"), Reference("own", "e\u0301.md"), Reference("own", "é.md")]
    assert {reference.seen_from("own") for reference in spelled} == {Reference(None, "é.md")}
    assert Reference(None, "é.md").seen_from("own") != Reference("other", "é.md").seen_from("own")


def test_what_lies_beside_the_directory_of_notes_is_no_note() -> None:
    place = Place("vault", ".notes")
    assert located(Reference(None, ".notes/a.md"), place, [place]) == (place, "a.md")
    assert located(Reference(None, "a.md"), place, [place]) is None
    assert located(Reference(None, ".notesa.md"), place, [place]) is None
    assert located(Reference("other", ".notes/a.md"), place, [place]) is None
    assert located(Reference(None, ".notes/a.md"), None, [place]) is None
