"""The notes that a message mentions: its inline links, outside code, that resolve to a note (MN-3, MN-6). Pure; no I/O."""

from dataclasses import dataclass
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

NOTE_ENDINGS = (".md", ".markdown")

_markdown = MarkdownIt("commonmark").enable("table")
# Left as written: the parser's own normalising would encode what must be compared byte for byte.
_markdown.normalizeLink = lambda url: url  # type: ignore[method-assign]
_markdown.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class Link:
    """A link's target, decoded once, as it stands, and its text."""

    ref: str
    title: str


@dataclass(frozen=True, slots=True)
class Target:
    """A note by its workspace's directory (None: the session's own) and its path from that workspace's root."""

    directory: str | None
    path: str


def links(text: str) -> list[Link]:
    """The inline links of a message, in order, each target once."""
    found: dict[str, Link] = {}
    for token in _markdown.parse(text):
        for position, child in enumerate(token.children or []):
            if child.type == "link_open" and child.markup != "autolink":
                ref = unquote(str(child.attrGet("href") or ""))
                found.setdefault(ref, Link(ref, _text(token.children or [], position)))
    return list(found.values())


def resolve(ref: str) -> Target | None:
    """Where a reference leads: `notes/x.md`, `../<directory>/notes/x.md`, or `/<directory>/notes/x.md`; None where to no note.

    `#heading` narrows a reference to a section; the note is the same.
    """
    path = ref.split("#", 1)[0]
    if ":" in path.split("/", 1)[0] or path.startswith("//") or path.endswith("/") or "\\" in path or "\x00" in path:
        return None
    if path.startswith("/"):
        directory, _, rest = path[1:].partition("/")
        return _target(directory, rest)
    depth, segments = 0, []
    for segment in path.split("/"):
        if segment in ("", "."):
            continue
        if segment != "..":
            segments.append(segment)
        elif segments:
            segments.pop()
        else:
            depth += 1
    if depth > 1:
        return None
    if depth == 1:
        return _target(segments[0], "/".join(segments[1:])) if segments else None
    return _target(None, "/".join(segments))


def _target(directory: str | None, path: str) -> Target | None:
    parts = path.split("/")
    if directory in ("", ".", "..") or not path.lower().endswith(NOTE_ENDINGS) or any(part in ("", ".", "..") for part in parts):
        return None
    return Target(directory, path)


def _text(children: list[Token], opening: int) -> str:
    text, depth = "", 0
    for child in children[opening:]:
        depth += child.nesting if child.type.startswith("link_") else 0
        if depth == 0:
            break
        text += child.content if child.type in ("text", "code_inline") else ""
    return text
