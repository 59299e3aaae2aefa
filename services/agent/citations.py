"""The citations in an answer: which of its marks are some, and what becomes of them when a model reads the answer again.

A mark counts where a reader sees it as text (ON-16); what Markdown makes of the rest is `shared.commonmark`. The same
reading serves the end of a stream, a reload, an import, and the history that is sent to a model.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from shared.commonmark.blocks import inline_text
from shared.commonmark.inline import MarkdownMarkers

# [1]  [1, 2]  [1，2]  [1、2], and what older answers have: [cit_blk_…] (ON-17). Footnotes [^1] and wiki links [[1]] are none.
_NUMBERS = r"[0-9]{1,4}(?:[^\S\n]{0,3}[,，、][^\S\n]{0,3}[0-9]{1,4}){0,31}"
_CITATION_ID = r"cit_blk_[A-Za-z0-9_-]{1,200}"
_MARK = rf"(?<!\[)\[{_NUMBERS}\]|\[{_NUMBERS}\](?!\])|\[{_CITATION_ID}\]|【{_NUMBERS}】"
_ANY_MARK = re.compile(_MARK)
_NUMBER = re.compile(r"[0-9]+")
_MARKS = MarkdownMarkers(_MARK, inside="[0-9c]")


# A source of an imported answer may have no path.
UNNAMED = "an earlier source"

# The note's path by what cites it: a source's number, or its `citation_id`.
type Names = Mapping[int | str, str]


def cited_sources(text: str, sources: Iterable[Mapping[str, Any]]) -> list[int]:
    """The numbers of the sources that an answer cites. What the end of a stream says, a reload says again (ON-16)."""
    sources = list(sources)
    legacy = {source["citation_id"]: source["number"] for source in sources if source["citation_id"]}
    return cited_numbers(text, [source["number"] for source in sources], legacy=legacy)


def cited_numbers(text: str, numbers: Collection[int], *, legacy: Mapping[str, int] | None = None) -> list[int]:
    """The `numbers` that `text` cites, each once, in the order of first citation.

    `legacy` has the number of each source by its `citation_id`, for older answers, which cite it so. What is unknown is text.
    """
    known: dict[int | str, int] = {number: number for number in numbers}
    known.update(legacy or {})
    cited: dict[int, None] = {}
    for mark in _MARKS.texts(inline_text(text)) if known and _ANY_MARK.search(text) else ():
        cited.update(dict.fromkeys(known[key] for key in _keys(mark) if key in known))
    return list(cited)


def names_of(sources: Iterable[Mapping[str, Any]]) -> Names:
    """What `without_numbers` needs, from the sources of an answer."""
    return {key: source["file_path"] or UNNAMED for source in sources for key in (source["number"], source["citation_id"]) if key}


def without_numbers(text: str, names: Names) -> str:
    """An earlier answer for a model to read again: what it cites is named by its note, so that no number can be taken for one of the
    answer to come (ON-13). Everything else stays as it is.
    """
    named: dict[str, str] = {}
    parts: list[str] = []
    end = 0
    for found in _MARKS.find(inline_text(text)) if names and _ANY_MARK.search(text) else ():
        mark, start = found["marker"], found.start("marker")
        if mark not in named:
            keys = _keys(mark)
            is_known = any(key in names for key in keys)
            named[mark] = "".join(f"({names[key]})" if key in names else f"[{key}]" for key in keys) if is_known else mark
        parts += (text[end:start], named[mark])
        end = start + len(mark)
    return "".join((*parts, text[end:]))


def _keys(mark: str) -> list[int | str]:
    inside = mark[1:-1]
    return [inside] if inside.startswith("c") else [int(number) for number in _NUMBER.findall(inside)]
