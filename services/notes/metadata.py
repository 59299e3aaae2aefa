"""A note's title and tags, from its text.

Title: the front matter's `title`, else the first level-one heading, else the file name. Tags: the front matter's `tags` and the inline
`#tags` outside code (the form of inline tags is Obsidian's). One pass over the lines, linear in the text: parsing every note
as Markdown would take longer than reading the vault, and hostile text must not take longer than other text.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt

from services.notes import front_matter
from services.notes.front_matter import FrontMatterError, Value
from services.notes.note_path import is_plain_text, nfc
from shared.contracts.front_matter import split

# To be raised with every change of what is read from a text: the index is then made anew from the files.
EDITION = 2

TITLE_CHARACTERS_MAX = 1000
TAGS_MAX = 500
# Longer ones are no tags: an index has keys of some 2,700 bytes at most.
TAG_CHARACTERS_MAX = 200
TAG_LEVELS_MAX = 20

_FENCE = re.compile(r"^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})(.*)$")
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_ATX = re.compile(r"^ {0,3}#(?:[ \t]+(.*))?$")
_ATX_CLOSE = re.compile(r"(?:^|[ \t])#+$")
_SETEXT = re.compile(r"^ {0,3}=+[ \t]*$")
_NOT_PARAGRAPH = re.compile(r"^ {0,3}(?:#{1,6}(?:[ \t]|$)|>|[-*+][ \t]|\d{1,9}[.)][ \t]|(?:[-*_][ \t]*){3,}$)")
_BACKTICKS = re.compile(r"`+")
_LINK = re.compile(r"\[[^\[\]]*\](?:\([^()]*\)|\[[^\[\]]*\])")
_WIKI_LINK = re.compile(r"\[\[[^\[\]]*\]\]")
_AUTOLINK = re.compile(r"<[^<>\s]*>")
_TAG = re.compile(r"(?:^|(?<=[\s（「『【《“‘，。、；：！？])|(?<=[^\]]\()|(?<=^\())#([^\s#]+)", re.MULTILINE)  # fmt: skip
_MARKUP = re.compile(r"[*_`\[\]<>&\\!]")
# What a body without any title, or any tag, has not: most notes need not be read line by line for one of them. Each begins with the
# character that the engine can look for quickly.
_MAY_BE_TITLE = re.compile(r"#(?<!##)(?:\s|\Z)|=(?<=[\n ]=)=*[ \t\r]*(?:\n|\Z)")
_MAY_BE_TAG = re.compile(r"#(?<![^\s（「『【《“‘，。、；：！？(]#)[^\s#]")
_inline = MarkdownIt("commonmark")


@dataclass(frozen=True, slots=True)
class Metadata:
    """What is shown of a note in lists. `tags`: without `#`, as first written, none twice whatever its case."""

    title: str
    tags: list[str]


def extract(text: str, file_name: str) -> Metadata:
    """Title and tags of a note's whole text. Hostile front matter is passed over."""
    parts = split(text)
    matter = _front_matter(parts.source)
    scan = _Scan()
    scan.read(parts.body.replace("\r\n", "\n").replace("\r", "\n"))
    title = _plain(matter.get("title")) or scan.title or nfc(file_name.rpartition(".")[0])
    return Metadata(title[:TITLE_CHARACTERS_MAX], _distinct([*_listed_tags(matter.get("tags")), *scan.tags()]))


def properties(text: str) -> dict[str, str]:
    """The front matter's entries whose value is one text. Hostile front matter is passed over."""
    matter = _front_matter(split(text).source)
    return {key: value for key, value in matter.items() if isinstance(value, str) and is_plain_text(key) and is_plain_text(value)}


def from_name(file_name: str) -> Metadata:
    """What is known of a note that cannot be read as text."""
    return Metadata(nfc(file_name.rpartition(".")[0]), [])


def tag_key(tag: str) -> str:
    """The form in which tags are compared."""
    return nfc(tag).casefold()


def tag_keys(tags: Iterable[str]) -> list[str]:
    """The keys by which a note with these tags is found: their own, and those of the tags above them."""
    keys: dict[str, None] = {}
    for tag in tags:
        parts = tag_key(tag).split("/")
        keys.update(dict.fromkeys("/".join(parts[:length]) for length in range(1, len(parts) + 1)))
    return list(keys)


def _front_matter(source: str | None) -> dict[str, Value]:
    if source is None:
        return {}
    try:
        return front_matter.parse(source)
    except FrontMatterError:
        return {}


def _plain(value: Value | None) -> str:
    # An escape in YAML can make what no text in UTF-8 has.
    return " ".join(nfc(value).split()) if isinstance(value, str) and is_plain_text(value) else ""


def _listed_tags(value: Value | None) -> Iterator[str]:
    items: Iterable[Value] = re.split(r"[,\s]+", value) if isinstance(value, str) else value if isinstance(value, list) else ()
    for item in items:
        tag = _plain(item).lstrip("#").strip("/ ")
        if tag:
            yield tag


def _distinct(tags: Iterable[str]) -> list[str]:
    seen: dict[str, str] = {}
    for tag in tags:
        if len(tag) <= TAG_CHARACTERS_MAX and tag.count("/") < TAG_LEVELS_MAX:
            seen.setdefault(tag_key(tag), tag)
    return list(seen.values())[:TAGS_MAX]


class _Scan:
    """One pass over the lines of a body: the first level-one heading, and the paragraphs that hold a `#`."""

    def __init__(self) -> None:
        self.title = ""
        self._paragraph: list[str] = []
        self._tags: list[str] = []
        self._in_list = False
        self._after_blank = True

    def read(self, body: str) -> None:
        """Reads the body as far as there may be something in it."""
        has_tags = _MAY_BE_TAG.search(body) is not None
        if not has_tags and not _MAY_BE_TITLE.search(body):
            return
        fence = ""
        for line in body.split("\n"):
            if self.title and not has_tags:
                return
            if fence:
                if (closing := _FENCE.match(line)) and closing[1].startswith(fence) and not closing[2].strip():
                    fence = ""
            elif (opening := _FENCE.match(line)) and not (opening[1][0] == "`" and "`" in opening[2]):
                self._end_paragraph()
                fence = opening[1]
            else:
                self._line(line)
        self._end_paragraph()

    def tags(self) -> list[str]:
        """The inline tags found."""
        return self._tags

    def _line(self, line: str) -> None:
        if not line.strip():
            self._end_paragraph()
            self._after_blank = True
            return
        indented = line.startswith(("    ", "\t"))
        if indented and self._after_blank and not self._in_list:
            return  # indented code; the line after it may be code as well
        if not indented:
            self._in_list = bool(_LIST_ITEM.match(line)) or (self._in_list and line[0] in " \t")
        self._after_blank = False
        if not self.title:
            self._heading(line)
        self._paragraph.append(line)

    def _heading(self, line: str) -> None:
        if atx := _ATX.match(line):
            self.title = _without_markup(_ATX_CLOSE.sub("", (atx[1] or "").rstrip()).strip())
        elif _SETEXT.match(line) and self._paragraph and not any(map(_NOT_PARAGRAPH.match, self._paragraph)):
            self.title = _without_markup(" ".join(part.strip() for part in self._paragraph))

    def _end_paragraph(self) -> None:
        if self._paragraph and len(self._tags) < TAGS_MAX and any("#" in line for line in self._paragraph):
            self._tags.extend(_inline_tags("\n".join(self._paragraph)))
        self._paragraph.clear()


def _without_markup(text: str) -> str:
    text = nfc(text.replace("\0", ""))
    if not _MARKUP.search(text) or len(text) > TITLE_CHARACTERS_MAX:
        return text
    children = _inline.parseInline(text)[0].children or []
    return "".join(child.content if child.type != "html_inline" else "" for child in children).strip()


def _inline_tags(paragraph: str) -> Iterator[str]:
    text = _without_code(paragraph)
    for pattern in (_WIKI_LINK, _LINK, _AUTOLINK):
        text = pattern.sub("\ufffc", text)
    for match in _TAG.finditer(nfc(text)):
        tag = _tag_prefix(match[1]).strip("/")
        if (
            tag
            and not all(unicodedata.category(character)[0] == "N" or character == "/" for character in tag)
            and any(map(str.isalnum, tag))
        ):
            yield tag


def _tag_prefix(text: str) -> str:
    for index, character in enumerate(text):
        if character not in "_-/" and unicodedata.category(character)[0] not in "LNM":
            return text[:index]
    return text


def _without_code(text: str) -> str:
    """The text without its code spans: a run of backticks up to the next run of the same length."""
    runs = list(_BACKTICKS.finditer(text))
    if not runs:
        return text
    later: dict[int, list[int]] = {}
    for index in range(len(runs) - 1, -1, -1):
        later.setdefault(len(runs[index][0]), []).append(index)
    kept: list[str] = []
    position = index = 0
    while index < len(runs):
        same = later[len(runs[index][0])]
        while same and same[-1] <= index:
            same.pop()
        if same:
            kept.append(text[position : runs[index].start()])
            index = same[-1]
            position = runs[index].end()
        index += 1
    kept.append(text[position:])
    return "\ufffc".join(kept)
