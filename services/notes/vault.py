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
import unicodedata
from collections.abc import Collection, Iterable, Iterator
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
    """Something bears a note's name but cannot be read as one: a device, a FIFO, a file over `NOTE_BYTES_MAX`."""


class NoteTooLarge(NoteUnreadable):
    """A file over `NOTE_BYTES_MAX`; `stat` is what it was when that was seen."""

    def __init__(self, stat: "FileStat") -> None:
        super().__init__(f"it is larger than {NOTE_BYTES_MAX} bytes")
        self.stat = stat


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

    def named(self, path: NotePath) -> NotePath:
        """The path by which the index knows what a client's path means.

        Names compare after NFC. Where two files differ in nothing else each is a note of its own, and only one can have the NFC path: the
        file that is spelled so, else the first by its spelling. The others' paths are as they are spelled. Where the file system takes
        names for equal that differ in case, the path has the case of the file.
        """
        names = (path.asked or path.text).split("/")
        keys: list[str] = []
        with contextlib.suppress(OSError, VaultUnavailable), self.entered() as top, contextlib.ExitStack() as opened:
            directory = top
            for name in names:
                keys.append(_key(directory, name))
                if len(keys) < len(names):
                    directory = os.open(actual_name(directory, keys[-1]), DIRECTORY_FLAGS, dir_fd=directory)
                    opened.callback(os.close, directory)
        return NotePath("/".join([*keys, *map(nfc, names[len(keys) :])]))

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
            listings: _Listings = {}
            for path in below:
                _survey_below(top, "", path.split("/"), 0, seen, listings)
        return seen

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
    """The spelling that a file has on the disk which has `name` in its path (see `Vault.named`); `name` itself where there is none."""
    if name.isascii() or _inode(directory, name) is not None:
        return name
    return min((entry for entry in os.listdir(directory) if nfc(entry) == name), default=name)


def _key(directory: int, name: str) -> str:
    """What the file that is found by `name` is called in its path; after NFC where there is none."""
    inode = _inode(directory, name)
    if inode is None:
        name = nfc(name)
        if (inode := _inode(directory, name)) is None:
            return name
    name = _as_listed(directory, name, inode)
    return nfc(name) if nfc(name) == name else _keys(os.listdir(directory), name).get(name, nfc(name))


def _keys(entries: Iterable[str], name: str) -> dict[str, str]:
    """The spellings of a name among a directory's entries, and what each is called in paths."""
    same = sorted((entry for entry in entries if nfc(entry) == nfc(name)), key=_order)
    return {entry: entry if number else nfc(entry) for number, entry in enumerate(same)}


def _order(name: str) -> tuple[bool, str]:
    return name != nfc(name), name


def _as_listed(directory: int, name: str, inode: int) -> str:
    """The spelling of what was found by `name`, where the file system finds it in any case."""
    if (other := name.swapcase()) == name or _inode(directory, other) != inode:
        return name
    found = [entry for entry in os.listdir(directory) if entry.casefold() == name.casefold()]
    return name if name in found else next((entry for entry in found if _inode(directory, entry) == inode), name)


def _inode(directory: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


# By device and inode of a directory: its entries, by what they are after NFC.
type _Listings = dict[tuple[int, int], dict[str, list[str]]]


def _spellings(directory: int, name: str, listings: _Listings) -> dict[str, str]:
    """As `_keys`, for the names that are there."""
    if unicodedata.is_normalized("NFC", name) and unicodedata.is_normalized("NFD", name):
        inode = _inode(directory, name)
        # Under another case it is another path's.
        return {} if inode is None or _as_listed(directory, name, inode) != name else {name: name}
    found = os.fstat(directory)
    listing = listings.get((found.st_dev, found.st_ino))
    if listing is None:
        listing = listings[found.st_dev, found.st_ino] = {}
        for entry in os.listdir(directory):
            listing.setdefault(nfc(entry), []).append(entry)
    return _keys(listing.get(nfc(name), ()), name)


def _survey_below(directory: int, above: str, names: list[str], depth: int, seen: Survey, listings: _Listings) -> None:
    """Adds what lies at or below a path, in each of its spellings."""
    name, *rest = names
    if rest and is_passed_over(name):
        return
    for actual, key in _spellings(directory, name, listings).items():
        path = f"{above}/{key}" if above else key
        try:
            if not rest:
                _look_at(directory, actual, path, depth, os.stat(actual, dir_fd=directory, follow_symlinks=False), seen)
                continue
            below = os.open(actual, DIRECTORY_FLAGS, dir_fd=directory)
            try:
                _survey_below(below, path, rest, depth + 1, seen, listings)
            finally:
                os.close(below)
        except OSError as error:
            if not is_absence(error):
                logger.warning("%s cannot be seen: %s", path, error.strerror)
                seen.unseen.append("/".join([path, *rest]))


def _walk(directory: int, path: str, depth: int, seen: Survey) -> None:
    """Adds what lies in an open directory; of several spellings of a name the first has the NFC path."""
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: _order(entry.name))
    except OSError as error:
        logger.warning("A directory cannot be listed: %s: %s", path or ".", error.strerror)
        seen.unseen.append(path)
        return
    names: set[str] = set()
    for entry in found:
        name = nfc(entry.name)
        if not is_plain_text(name) or "\\" in name:
            continue
        if name in names:
            name = entry.name
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
    if stat.S_ISREG(found.st_mode):
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
        raise NoteTooLarge(FileStat.of(before))
    for _ in range(READ_ATTEMPTS):
        data = _read_bytes(descriptor, before.st_size)
        after = os.fstat(descriptor)
        if len(data) > NOTE_BYTES_MAX:
            raise NoteTooLarge(FileStat.of(after))
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
