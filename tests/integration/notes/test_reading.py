"""Lists and reads, over NATS."""

import hashlib
import os
import unicodedata
from pathlib import Path

import pytest

from shared.contracts.errors import ErrorCode, ServiceError
from tests.integration.notes.conftest import Asker, Serving


async def test_a_vault_is_listed_and_its_notes_are_read_from_their_files(vault: Path, serving: Serving) -> None:
    (vault / "sub").mkdir()
    (vault / "a.md").write_bytes(b"---\ntitle: Alpha\ntags: [x, y/z]\n---\n# Not this\ntext #inline\n")
    (vault / "sub" / "b.markdown").write_bytes(b"# Beta\n")
    (vault / "c.txt").write_bytes(b"no note")
    (vault / ".obsidian").mkdir()
    (vault / ".obsidian" / "d.md").write_bytes(b"passed over")
    async with serving() as asker:
        workspace = await asker.workspace()
        assert (workspace.title, workspace.notes_dir, workspace.notes, workspace.available) == ("vault", "", 2, True)
        page = await asker.page(workspace.id)
        assert [(note.path, note.title, note.tags) for note in page.items] == [
            ("a.md", "Alpha", ["x", "y/z", "inline"]),
            ("sub/b.markdown", "Beta", []),
        ]
        note = await asker.read(workspace.id, "a.md")
        assert note.content == (vault / "a.md").read_text()
        assert note.content_hash == page.items[0].content_hash == hashlib.sha256((vault / "a.md").read_bytes()).hexdigest()
        assert note.size == (vault / "a.md").stat().st_size
        assert note.revision > 0


async def test_a_byte_order_mark_and_line_endings_are_content(vault: Path, serving: Serving) -> None:
    data = "\ufeff---\r\ntitle: T\r\n---\r\nline\rold mac\u2028\n\n".encode()
    (vault / "a.md").write_bytes(data)
    async with serving() as asker:
        note = await asker.read((await asker.workspace()).id, "a.md")
        assert note.content.encode() == data
        assert note.title == "T"
        assert note.content_hash == hashlib.sha256(data).hexdigest()
