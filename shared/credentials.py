"""Passwords that programs give each other: a file each, made where it is missing, never printed."""

import contextlib
import os
import secrets
from pathlib import Path

# 144 bits.
PASSWORD_BYTES = 18


def password(path: Path) -> tuple[str, bool]:
    """The password in a file, and whether it was made just now. One that was made needs no quoting in a URL. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if held := path.read_text("utf-8").strip():
            return held, False
    made = secrets.token_urlsafe(PASSWORD_BYTES)
    write_private(path, made + "\n")
    return made, True


def write_private(path: Path, text: str) -> None:
    """Replaces the file as a whole, readable by its owner alone; it is on disk when this returns."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
