"""A vault's files, and the only way to them: from the root's descriptor down, segment by segment, following no link.

A path that is checked and then opened by name can change in between; a walk by descriptors cannot leave the root (the same reach as
openat2 with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, on every kernel and without ctypes). The root itself may be a link. Everything here
blocks and belongs in a thread: a network mount may not answer.
"""

import contextlib
import errno
import logging
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from services.notes import durable_file
from services.notes.note_path import NotePath, is_note_name, is_passed_over, is_plain_text, nfc

logger = logging.getLogger(__name__)

NOTE_BYTES_MAX = 8 * 1024 * 1024
# Deeper directories are not looked into: each level holds a descriptor.
DEPTH_MAX = 64
# A file changed this shortly before it was read may change again within the same tick of the file system's clock.
TICK_NS = 100_000_000
READ_ATTEMPTS = 3

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO would wait for its writer, a terminal could become ours.
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SIGNED = 2**63 - 1
# An index has keys of some 2,700 bytes at most, and a file system paths of 4,096.
PATH_BYTES_MAX = 2000


class VaultUnavailable(Exception):
    """The vault's root cannot be entered: an outage, whatever the reason."""


class NoSuchNote(Exception):
    """No note is there: nothing, a directory, a link, or something that is passed over."""


class NoteUnreadable(Exception):
    """Something bears a note's name but cannot be one: a device, a FIFO, a file over `NOTE_BYTES_MAX`."""


class NoteInaccessible(Exception):
    """A note is there, and cannot be read at present: no permission, a failing disk."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """What tells that a file was changed, without reading it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> "FileStat":
        """Of a stat result. Numbers are kept to the 63 bits that a database has: times after 2262 count as then."""
        return cls(found.st_size, _bounded(found.st_mtime_ns), _bounded(found.st_ctime_ns), found.st_ino & _SIGNED)


@dataclass(frozen=True, slots=True)
class RawNote:
    """A note's bytes, and the stat that belongs to them. `settled`: a later change would show in the stat."""

    data: bytes
    stat: FileStat
    settled: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """What was seen below some paths: the notes by path, the paths whose contents could not be seen, and the temporary files."""

    notes: dict[str, FileStat] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)

    def saw(self, path: str) -> bool:
        """Whether a note of that path would be in `notes` if it were there."""
        return not any(_is_within(path, hidden) for hidden in self.unseen)


@dataclass(frozen=True, slots=True)
class Vault:
    """The notes in `root/notes_dir`."""

    root: Path
    notes_dir: str = ""

    @property
    def top(self) -> Path:
        """The directory that note paths are relative to."""
        return self.root / self.notes_dir

    def identity(self) -> str:
        """Which directory it is: its device and inode.

        Raises:
            VaultUnavailable: it cannot be entered.
        """
        with self.entered() as top:
            found = os.fstat(top)
            return f"{found.st_dev}:{found.st_ino}"

    @contextmanager
    def entered(self) -> Iterator[int]:
        """A descriptor of the notes' directory.

        Raises:
            VaultUnavailable: it cannot be entered or listed.
        """
        with contextlib.ExitStack() as opened:
            try:
                root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                opened.callback(os.close, root)
                top = opened.enter_context(opened_directories(root, [part for part in self.notes_dir.split("/") if part]))
            except OSError as error:
                raise VaultUnavailable(f"{self.top} cannot be read: {error.strerror}") from error
            yield top

    def read(self, path: NotePath) -> RawNote:
        """The whole of a note, as one version of it where its writer replaces it or pauses.

        Raises:
            VaultUnavailable: the vault is away.
            NoSuchNote, NoteUnreadable, NoteInaccessible: see there.
        """
        if not path.names_a_note:
            raise NoSuchNote(path.text)
        descriptor = self._open(path)
        try:
            return read_whole(descriptor)
        except OSError as error:
            raise NoteInaccessible(f"{path.text} cannot be read: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def survey(self, below: Collection[str] | None = None) -> Survey:
        """The notes at or below these paths, or all. Reads directories only.

        Raises:
            VaultUnavailable: the vault is away.
        """
        seen = Survey()
        with self.entered() as top:
            if below is None:
                _walk(top, "", 0, seen)
                if "" in seen.unseen:
                    raise VaultUnavailable(f"{self.top} cannot be listed")
                return seen
            for path in below:
                self._survey_path(top, path, seen)
        return seen

    def _survey_path(self, top: int, path: str, seen: Survey) -> None:
        *directories, name = path.split("/")
        if any(map(is_passed_over, directories)):
            return
        try:
            with opened_directories(top, directories) as parent:
                actual = actual_name(parent, name)
                _look_at(parent, actual, path, len(directories), os.stat(actual, dir_fd=parent, follow_symlinks=False), seen)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if not _is_link(error):
                logger.warning("%s cannot be seen: %s", self.top / path, error.strerror)
                seen.unseen.append(path)

    def _open(self, path: NotePath) -> int:
        with self.entered() as top, directory_of_note(top, path) as directory:
            return open_note(directory, actual_name(directory, path.segments[-1]), path)


@contextmanager
def directory_of_note(top: int, path: NotePath) -> Iterator[int]:
    """A descriptor of the directory that a note lies in.

    Raises:
        NoSuchNote, NoteUnreadable, NoteInaccessible: see there.
    """
    with contextlib.ExitStack() as opened:
        try:
            directory = opened.enter_context(opened_directories(top, path.segments[:-1]))
        except OSError as error:
            raise _not_opened(error, path) from error
        yield directory


def open_note(directory: int, name: str, path: NotePath) -> int:
    """A descriptor of a note's file, for reading.

    Raises:
        NoSuchNote, NoteUnreadable, NoteInaccessible: see there.
    """
    try:
        return os.open(name, FILE_FLAGS, dir_fd=directory)
    except OSError as error:
        raise _not_opened(error, path) from error


def _not_opened(error: OSError, path: NotePath) -> Exception:
    if is_absence(error):
        return NoSuchNote(path.text)
    if isinstance(error, PermissionError):
        return NoteInaccessible(f"{path.text} may not be read by this process")
    return NoteUnreadable(f"it cannot be opened: {error.strerror}")


@contextmanager
def opened_directories(top: int, names: list[str]) -> Iterator[int]:
    """A descriptor of the directory below `top` that these names lead to, no link followed.

    Raises:
        OSError: one of them is not there, is a link or no directory.
    """
    directory = os.dup(top)
    try:
        for name in names:
            below = os.open(actual_name(directory, name), DIRECTORY_FLAGS, dir_fd=directory)
            os.close(directory)
            directory = below
        yield directory
    finally:
        os.close(directory)


def actual_name(directory: int, name: str) -> str:
    """The spelling that a file has whose name is `name` after NFC; `name` itself where there is none."""
    if name.isascii():
        return name
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return min((entry for entry in os.listdir(directory) if nfc(entry) == name), default=name)
    return name


def _walk(directory: int, path: str, depth: int, seen: Survey) -> None:
    """Adds what lies in an open directory. Only one of several spellings of a name is taken, the NFC one first."""
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: (entry.name != nfc(entry.name), entry.name))
    except OSError as error:
        logger.warning("A directory cannot be listed: %s: %s", path or ".", error.strerror)
        seen.unseen.append(path)
        return
    names: set[str] = set()
    for entry in found:
        name = nfc(entry.name)
        if name in names or not is_plain_text(name) or "\\" in name:
            continue
        names.add(name)
        child = f"{path}/{name}" if path else name
        try:
            _look_at(directory, entry.name, child, depth, entry, seen)
        except OSError as error:
            if not is_absence(error):
                seen.unseen.append(child)


def _look_at(directory: int, name: str, path: str, depth: int, entry: "os.DirEntry[str] | os.stat_result", seen: Survey) -> None:
    # A directory entry knows its kind without a system call.
    is_directory = entry.is_dir(follow_symlinks=False) if isinstance(entry, os.DirEntry) else stat.S_ISDIR(entry.st_mode)
    if is_directory:
        if not is_passed_over(name) and depth < DEPTH_MAX:
            below = os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
            try:
                _walk(below, path, depth + 1, seen)
            finally:
                os.close(below)
        return
    if durable_file.is_temporary(name):
        seen.temporary.append(path)
        return
    if not is_note_name(name) or len(path.encode()) > PATH_BYTES_MAX:
        return
    found = entry.stat(follow_symlinks=False) if isinstance(entry, os.DirEntry) else entry
    if stat.S_ISREG(found.st_mode) and found.st_size <= NOTE_BYTES_MAX:
        seen.notes[path] = FileStat.of(found)


def read_whole(descriptor: int) -> RawNote:
    """An open file's bytes, as one version of it.

    Raises:
        NoSuchNote, NoteUnreadable: it is none to read.
        OSError: the disk fails.
    """
    started = time.time_ns()
    before = os.fstat(descriptor)
    if stat.S_ISDIR(before.st_mode):
        raise NoSuchNote
    if not stat.S_ISREG(before.st_mode):
        raise NoteUnreadable("it is no regular file")
    if before.st_size > NOTE_BYTES_MAX:  # not even begun
        raise NoteUnreadable(f"it is larger than {NOTE_BYTES_MAX} bytes")
    for _ in range(READ_ATTEMPTS):
        data = _read_bytes(descriptor, before.st_size)
        after = os.fstat(descriptor)
        if whole := FileStat.of(before) == FileStat.of(after) and len(data) == after.st_size:
            break
        before = after
    last_change = max(after.st_mtime_ns, after.st_ctime_ns)
    return RawNote(data, FileStat.of(after), settled=whole and abs(started - last_change) > TICK_NS)


def _read_bytes(descriptor: int, expected: int) -> bytes:
    parts: list[bytes] = []
    position = 0
    while position <= NOTE_BYTES_MAX and (part := os.pread(descriptor, max(4096, expected + 1 - position), position)):
        parts.append(part)
        position += len(part)
    if position > NOTE_BYTES_MAX:
        raise NoteUnreadable(f"it is larger than {NOTE_BYTES_MAX} bytes")
    return b"".join(parts)


def _bounded(nanoseconds: int) -> int:
    return max(-_SIGNED, min(nanoseconds, _SIGNED))


def is_absence(error: OSError) -> bool:
    """Whether an error says that no note is there."""
    return isinstance(error, (FileNotFoundError, NotADirectoryError)) or _is_link(error) or error.errno == errno.ENAMETOOLONG


def _is_link(error: OSError) -> bool:
    return error.errno == errno.ELOOP  # the last part is a link, and none is followed


def _is_within(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(f"{above}/")
