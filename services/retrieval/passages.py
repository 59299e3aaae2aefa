"""A note made ready to be stored: its chunks with their words, and what names each of them."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

import orjson

from services.retrieval.chunking import Chunk, chunk_note, is_withdrawn
from services.retrieval.tokens import document_vector
from shared.contracts.index import SparseVector
from shared.contracts.notes import Note

# Raised when the same note would be cut into other chunks, or get other words: notes that were cut before are then cut anew.
CUT_VERSION = 5

# One with a user name or a password before its host is none: it would be told to a model (RC-8).
_WEB_ADDRESS = re.compile(r"https?://[^\s\0@/?#\\]{1,255}([/?#][^\s\0]{0,2000})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk with all that is derived from it.

    `point` names the chunk as the index holds it. The point of that name never changes: other words or filters make another.
    """

    chunk: Chunk
    sha256: str
    passage_sha: bytes
    words: SparseVector
    point: UUID


@dataclass(frozen=True, slots=True)
class CutNote:
    """A note's state, for the tables. `passages` is empty where it is `excluded`."""

    workspace: UUID
    path: str
    title: str
    tags: list[str]
    content_hash: str
    revision: int
    modified_at: datetime
    source_url: str | None
    category: str | None
    excluded: bool
    passages: list[Passage]


def cut_note(workspace: UUID, document: UUID, note: Note) -> CutNote:
    """Cuts a note and takes its words; for a thread, it computes for as long as the note is long."""
    # PostgreSQL cannot store NUL. CommonMark replaces it, too, and one code point stays one.
    content = note.content.replace("\0", "\ufffd")
    title = note.title.replace("\0", "\ufffd")
    tags = [tag.replace("\0", "\ufffd") for tag in note.tags]
    excluded = is_withdrawn(content)
    chunks = [] if excluded else chunk_note(document, content)
    passages = [_passage(chunk, title, ancestors(note.path), searchable_tags(tags)) for chunk in chunks]
    return CutNote(
        *(workspace, note.path, title, tags, note.content_hash, note.revision, note.modified_at),
        *(_source(note), _category(note), excluded, passages),
    )


def _source(note: Note) -> str | None:
    """Where the note's text is from (RC-5): the front matter's `source` or `url`, where that is an address of the web."""
    given = (note.properties.get(name, "").strip() for name in ("source", "url"))
    return next((url for url in given if _WEB_ADDRESS.fullmatch(url)), None)


def _category(note: Note) -> str | None:
    """What kind of note it is (RC-5): the front matter's `category`, else the outermost folder."""
    folder, slash, _ = note.path.partition("/")
    return note.properties.get("category", "").strip() or (folder if slash else None)


def _passage(chunk: Chunk, title: str, folders: list[str], tags: list[str]) -> Passage:
    sha256 = chunk.sha256
    known_by = orjson.dumps([CUT_VERSION, sha256, title, chunk.heading_path, folders, tags, chunk.exchange])
    return Passage(
        chunk,
        sha256,
        passage_sha(chunk.heading_path, chunk.text),
        document_vector(chunk.text, list(chunk.heading_path), title),
        uuid5(chunk.block_id, hashlib.blake2b(known_by, digest_size=16).hexdigest()),
    )


def embedded_text(heading_path: Sequence[str], text: str) -> str:
    """What is embedded for a chunk: it says what it is about, which the text alone often does not."""
    return "\n".join((" > ".join(heading_path), text)) if heading_path else text


def passage_sha(heading_path: Sequence[str], text: str) -> bytes:
    """Names what is embedded for a chunk."""
    return hashlib.sha256(embedded_text(heading_path, text).encode()).digest()


def ancestors(path: str) -> list[str]:
    """The folders a note lies in, outermost first, each with its final slash."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) + "/" for depth in range(len(parts))]


def searchable_tags(tags: list[str]) -> list[str]:
    """Tags as filters compare them: without case, and `a/b` is an `a` too."""
    found = {}
    for tag in tags:
        parts = normal_tag(tag).split("/")
        found.update(dict.fromkeys("/".join(parts[: depth + 1]) for depth in range(len(parts))))
    return sorted(found)


def normal_tag(tag: str) -> str:
    """One tag as filters compare it."""
    return tag.removeprefix("#").strip("/").casefold()
