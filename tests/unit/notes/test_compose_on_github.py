"""What GitHub shows of composed texts: the texts themselves. Where it makes a link of an address by itself, that leads where it says."""

import re
from html import unescape
from typing import Any
from urllib.parse import unquote

import cmarkgfm
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from services.notes.compose import compose
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.markdown import Document, Preset

TAG = re.compile(r"<(/?)(\w+)([^>]*)>")
PARTS = ["https://x.y/", "http://x.y", "ftp://x.y/", "www.x.y/", "HTTP://", "a", "_", "~", "*", "$", "==", "#", "(", ")", "&copy;", "&",
         "=", "[1]", "|", "\\", "`", ".", ",", " ", "\u3000", "字", "。", "me@x.org"]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join)


def shown(*content: Any) -> tuple[str, list[tuple[str, str]]]:
    """The text of a paragraph, and its links as target and text."""
    markdown = compose(Document.model_validate({"blocks": [{"type": "paragraph", "content": list(content)}]}), Preset())
    html = cmarkgfm.github_flavored_markdown_to_html(markdown)
    links = re.findall(r'<a href="([^"]*)"[^>]*>(.*?)</a>', html)
    return unescape(TAG.sub("", html)).removesuffix("\n"), [
        (unquote(unescape(target)), unescape(TAG.sub("", text))) for target, text in links
    ]


@pytest.mark.parametrize(
    "address", ["https://x.y/~user/#top", "http://x.y/?a=1&copy=2", "https://x.y/Foo_(bar)", "www.x.y/_next/a", "https://x.y/?s=abc=="]
)
def test_an_address_in_a_text_leads_where_it_says(address: str) -> None:
    for text in (address, f"see {address} now", f"({address})."):
        assert shown(text) == (text, [(address if "://" in address else f"http://{address}", address)])
    assert shown({"type": "bold", "content": address})[1] == shown(address)[1]


@pytest.mark.parametrize("address", ["https://x.y/a*b*c", "https://x.y/[1]", "https://x.y/a\\b", "https://x.y/&copy;z", "https://x.y/`a`"])
def test_an_address_that_markdown_cannot_leave_alone_is_shown_as_it_is_and_no_link(address: str) -> None:
    assert shown(f"see {address} now") == (f"see {address} now", [])


def test_an_address_ends_where_its_text_does() -> None:
    assert shown("https://x.y/a", {"type": "bold", "content": "b"}, "字") == ("https://x.y/ab字", [])
    assert shown("https://x.y/a", {"type": "code", "text": "b"}) == ("https://x.y/ab", [])


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["", "bold", "italic", "strikethrough"])), min_size=1, max_size=4))
def test_whatever_a_text_holds_is_shown_and_every_link_leads_where_it_says(texts: list[tuple[str, str]]) -> None:
    content = [{"type": kind, "content": text} if kind else text for text, kind in texts]
    whole = "".join(text for text, _ in texts)
    assume(whole.strip() == whole)
    try:
        text, links = shown(*content)
    except ServiceError as error:
        assert error.code is ErrorCode.INVALID
        return
    assert text == whole
    for target, linked in links:
        assert unquote(linked) in (target, target.removeprefix("http://"), target.removeprefix("mailto:"))


@pytest.mark.parametrize("title", ["C:\\", 'C:\\"', '\\\\" y', '"', "a\\b"])
def test_a_title_with_backslashes_stays_one(title: str) -> None:
    link = {"type": "link", "target": "a.md", "content": "x", "title": title}
    text, links = shown(link, ", ", {**link, "target": "b.md"}, ' "z")')
    assert (text, links) == ('x, x "z")', [("a.md", "x"), ("b.md", "x")])
