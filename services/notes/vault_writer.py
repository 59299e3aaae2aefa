"""Changing a vault's files: each change against a version, nothing that another program wrote ever overwritten.

A note is replaced by changing names with the new file in one step. What came out is looked at *after* that: is it not the version that
was to be replaced, the two change names again. Between a look before and a rename another program could save; here it cannot.
The same for a move and for the trash: first the rename, then the look, and back where it was another version.

Like `vault` everything here blocks, goes by descriptors and follows no link. The caller holds the workspace's lock (`write_lock`),
which keeps our own writers apart; other programs know no lock.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from services.notes import durable_file
from services.notes.durable_file import Model, Temporary, digest
from services.notes.note_path import NotePath, new_name_problem
from services.notes.vault import (
    DEPTH_MAX,
    DIRECTORY_FLAGS,
    FILE_FLAGS,
    NOTE_BYTES_MAX,
    PATH_BYTES_MAX,
    FileStat,
    NoSuchNote,
    NoteUnreadable,
    RawNote,
    Vault,
    VaultUnavailable,
    actual_name,
    directory_of_note,
    is_absence,
    open_note,
    opened_directories,
    read_whole,
)
from shared.contracts.errors import ErrorCode, ServiceError

logger = logging.getLogger(__name__)

TRASH = ".trash"
# How often names are changed back while another program goes on saving.
SWAPS_MAX = 10

type Edit = Callable[[bytes], bytes]


class NoteStale(Exception):
    """The note is another version than the one named."""

    def __init__(self, current: str | None) -> None:
        super().__init__(current)
        self.current = current


class NoteExists(Exception):
    """Something bears the name that is asked for; `current` is None where it is no note."""

    def __init__(self, current: str | None) -> None:
        super().__init__(current)
        self.current = current


class NoteBusy(Exception):
    """Another program has the note open for writing."""


@dataclass(frozen=True, slots=True)
class _Version:
    """What a file is now: `hash` None where it is none to read."""

    hash: str | None
    busy: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """An open directory of a vault, and a name in it as it is spelled on the disk."""

    top: int
    directory: int
    name: str


class VaultWriter:
    """Changes one vault. `identity`: of the directory that the vault is known to be; None where it was never seen."""

    def __init__(self, vault: Vault, identity: str | None) -> None:
        self._vault = vault
        self._identity = identity

    def create(self, path: NotePath, data: bytes) -> RawNote:
        """A new note, and the directories it needs.

        Raises:
            NoteExists: the name is taken, in whatever spelling.
            VaultUnavailable: the vault is away.
            ServiceError: `path_invalid`, `too_large`.
            OSError: it could not be written; nothing of it is there.
        """
        _require_size(data)
        with (
            self._entered() as top,
            _new_place(top, path) as place,
            durable_file.written(place.directory, data, Model.of_directory(place.directory)) as temporary,
        ):
            _rename_new(place.directory, temporary.name, place)
            os.fsync(place.directory)
            return _as_written(temporary.descriptor, data)

    def replace(self, path: NotePath, edit: Edit, expected: str | None = None) -> RawNote:
        """Make of a note's bytes what `edit` makes of them; `expected` None takes whatever version is there.

        Raises:
            NoSuchNote, NoteUnreadable: see `vault`.
            NoteStale: it is another version, or became one meanwhile.
            NoteBusy: another program is writing it.
            VaultUnavailable: the vault is away.
            ServiceError: `too_large`, and what `edit` raises.
            OSError: it could not be written; the version that was there still is.
        """
        with self._entered() as top, _place_of(top, path) as place:
            with _opened(place, path) as descriptor:
                raw = read_whole(descriptor)
                current = digest(raw.data)
                if expected not in (None, current):
                    raise NoteStale(current)
                data = edit(raw.data)
                model = Model.of_file(descriptor)
            if data == raw.data:
                return raw
            _require_size(data)
            with durable_file.written(place.directory, data, model, current) as temporary:
                _put_in_place(place, temporary, current)
                return _as_written(temporary.descriptor, data)

    def move(self, path: NotePath, to: NotePath, expected: str, check: Callable[[bytes], object]) -> RawNote:
        """Give a note another path; `check` may refuse its bytes.

        Raises:
            As `replace` and `create`.
        """
        with self._entered() as top, _place_of(top, path) as source, _opened(source, path) as descriptor:
            raw = read_whole(descriptor)
            if digest(raw.data) != expected:
                raise NoteStale(digest(raw.data))
            check(raw.data)
            if path == to:
                return raw
            with _new_place(top, to) as target:
                _rename_new(source.directory, source.name, target)
                _require_version(target, source, expected)
                os.fsync(target.directory)
                os.fsync(source.directory)
                return _as_written(descriptor, raw.data)

    def trash(self, path: NotePath, expected: str) -> None:
        """Put a note into the trash, under its path or, where an earlier one lies there, a numbered one.

        Raises:
            As `replace`.
        """
        with self._entered() as top, _place_of(top, path) as place:
            with _opened(place, path) as descriptor:
                current = digest(read_whole(descriptor).data)
            if current != expected:
                raise NoteStale(current)
            *directories, name = path.segments
            with _made_directories(top, [TRASH, *directories], trusted=True) as trash:
                try:
                    kept = _into_trash(place.directory, place.name, trash, name)
                except FileNotFoundError:
                    raise NoSuchNote(path.text) from None
                _require_version(_Place(top, trash, kept), place, expected)
                os.fsync(trash)
                os.fsync(place.directory)

    def sweep(self, paths: Iterable[str]) -> None:
        """Clear away temporary files that a crash has left; what may be another program's edit goes into the trash.

        Raises:
            VaultUnavailable: the vault is away.
        """
        with self._entered() as top:
            for path in paths:
                *directories, name = path.split("/")
                try:
                    with opened_directories(top, directories) as directory:
                        _sweep(_Place(top, directory, name), directories)
                except OSError as error:
                    if not is_absence(error):
                        logger.warning("%s cannot be cleared away: %s", path, error.strerror)

    @contextmanager
    def _entered(self) -> Iterator[int]:
        with self._vault.entered() as top:
            found = os.fstat(top)
            if self._identity not in (None, f"{found.st_dev}:{found.st_ino}"):
                # An empty mount point, perhaps: a note written there would be lost to the vault.
                raise VaultUnavailable(f"{self._vault.top} is not the directory it was")
            yield top


def _require_size(data: bytes) -> None:
    if len(data) > NOTE_BYTES_MAX:
        raise ServiceError(
            ErrorCode.TOO_LARGE, f"The note would have {len(data)} bytes; at most {NOTE_BYTES_MAX} are allowed.", limit=NOTE_BYTES_MAX
        )


@contextmanager
def _place_of(top: int, path: NotePath) -> Iterator[_Place]:
    """Where a note lies."""
    if not path.names_a_note:
        raise NoSuchNote(path.text)
    with directory_of_note(top, path) as directory:
        yield _Place(top, directory, actual_name(directory, path.segments[-1]))


@contextmanager
def _new_place(top: int, path: NotePath) -> Iterator[_Place]:
    """Where a note is to be; its directories are made, and go again if it does not come."""
    *directories, name = path.segments
    if not path.names_a_note:
        raise _bad_path(
            path, "has no name that a note can have: it ends in .md or .markdown, and lies in no directory with a dot before it"
        )
    if len(path.segments) > DEPTH_MAX or len(path.text.encode()) > PATH_BYTES_MAX:
        raise _bad_path(path, "is too long or too deep")
    if problem := new_name_problem(name):
        raise _bad_path(path, f"has a name that {problem}")
    with _made_directories(top, directories) as directory:
        place = _Place(top, directory, actual_name(directory, name))
        if durable_file.name_is_taken(directory, place.name):
            raise NoteExists(_version(place).hash)
        yield place


@contextmanager
def _opened(place: _Place, path: NotePath) -> Iterator[int]:
    """A note's file, for reading."""
    descriptor = open_note(place.directory, place.name, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _made_directories(top: int, names: list[str], *, trusted: bool = False) -> Iterator[int]:
    """The directory that these names lead to; those that are missing are made, durable, and removed again where the block fails."""
    made: list[tuple[str, int]] = []
    directory = top
    with ExitStack() as opened:
        try:
            for name in names:
                actual = actual_name(directory, name)
                if not durable_file.name_is_taken(directory, actual):
                    if not trusted and (problem := new_name_problem(name)):
                        raise ServiceError(ErrorCode.PATH_INVALID, f"The path has a directory whose name {problem}.")
                    _make_directory(directory, actual)
                    made.append((actual, directory))
                directory = _open_directory(directory, actual)
                opened.callback(os.close, directory)
            yield directory
        except BaseException:
            for name, parent in reversed(made):
                _remove_directory(name, parent)
            raise


def _open_directory(parent: int, name: str) -> int:
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    except OSError as error:
        if not is_absence(error):
            raise
        raise ServiceError(ErrorCode.PATH_INVALID, f"{name} is no directory, or a link to one; links are not followed.") from error


def _make_directory(parent: int, name: str) -> None:
    above = os.fstat(parent)
    os.mkdir(name, above.st_mode & 0o777, dir_fd=parent)
    try:
        with contextlib.suppress(PermissionError):
            os.chown(name, above.st_uid, above.st_gid, dir_fd=parent, follow_symlinks=False)
        os.fsync(parent)
    except OSError:
        _remove_directory(name, parent)
        raise


def _remove_directory(name: str, parent: int) -> None:
    with contextlib.suppress(OSError):  # somebody has put something there
        os.rmdir(name, dir_fd=parent)


def _rename_new(source: int, name: str, target: _Place) -> None:
    try:
        durable_file.rename_new(source, name, target.directory, target.name)
    except FileExistsError:
        raise NoteExists(_version(target).hash) from None
    except FileNotFoundError:
        raise NoSuchNote(name) from None


def _put_in_place(place: _Place, temporary: Temporary, replaced: str) -> None:
    try:
        exchanged = durable_file.exchange(place.directory, temporary.name, place.name)
    except FileNotFoundError:
        raise NoSuchNote(place.name) from None
    if not exchanged:
        _rename_over(place, temporary, replaced)
        return
    out = _Place(place.top, place.directory, temporary.name)
    try:
        found = _version(out)
        os.fsync(place.directory)
    except OSError:
        _put_back(place, temporary)
        raise
    if found != _Version(replaced, busy=False):
        _put_back(place, temporary)
        raise NoteBusy if found.hash == replaced else NoteStale(found.hash)
    os.unlink(temporary.name, dir_fd=place.directory)


def _rename_over(place: _Place, temporary: Temporary, replaced: str) -> None:
    """Where names cannot change in one step: look as late as can be, then rename."""
    found = _version(place)
    if found != _Version(replaced, busy=False):
        raise NoteBusy if found.hash == replaced else NoteStale(found.hash)
    os.rename(temporary.name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    os.fsync(place.directory)


def _put_back(place: _Place, temporary: Temporary) -> None:
    """Give the name back to what came out, or to what another program has put there since; nothing but our own file goes."""
    placed: int | None = temporary.inode
    for _ in range(SWAPS_MAX):
        held = _inode(place.directory, temporary.name)
        try:
            durable_file.exchange(place.directory, temporary.name, place.name)
        except FileNotFoundError:
            # Another program has deleted what we had put there. What came out is newer than what it knew.
            with contextlib.suppress(FileExistsError):
                durable_file.rename_new(place.directory, temporary.name, place.directory, place.name)
            break
        if _inode(place.directory, temporary.name) == placed:
            break
        # A save came between the two: that one is the newest, and held already by its program to have replaced the other.
        placed = held
    if _inode(place.directory, temporary.name) not in (None, temporary.inode):
        _rescue(place, temporary.name, [])
    os.fsync(place.directory)


def _require_version(moved: _Place, source: _Place, expected: str) -> None:
    """Undo a rename whose file is another version than was asked for, or is being written."""
    found = _version(moved)
    if found == _Version(expected, busy=False):
        return
    try:
        durable_file.rename_new(moved.directory, moved.name, source.directory, source.name)
    except FileExistsError:
        logger.warning("%s was saved anew while it was moved; both versions are kept", source.name)
    raise NoteBusy if found.hash == expected else NoteStale(found.hash)


def _into_trash(source: int, name: str, trash: int, wanted: str) -> str:
    """Rename into the trash under the first free name; which that is."""
    stem, dot, suffix = wanted.rpartition(".")
    number = 1
    while True:
        kept = wanted if number == 1 else f"{stem} {number}{dot}{suffix}"
        try:
            durable_file.rename_new(source, name, trash, kept)
            return kept
        except FileExistsError:
            number += 1


def _sweep(place: _Place, directories: list[str]) -> None:
    mode = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False).st_mode
    if durable_file.is_dispensable(place.name, mode, _version(place).hash or ""):
        os.unlink(place.name, dir_fd=place.directory)
        return
    _rescue(place, place.name, directories)


def _rescue(place: _Place, name: str, directories: list[str]) -> None:
    """Keep bytes of which nobody knows whether they are needed."""
    kept = f"rescued {durable_file.token(name)}.md"
    with _made_directories(place.top, [TRASH, *directories], trusted=True) as trash:
        kept = _into_trash(place.directory, name, trash, kept)
    logger.warning("A version that came in between is in the trash: %s", kept)


def _version(place: _Place) -> _Version:
    try:
        descriptor = os.open(place.name, FILE_FLAGS, dir_fd=place.directory)
    except OSError as error:
        if is_absence(error):
            return _Version(None, busy=False)
        raise
    try:
        # Asked first: who opens it later finds it under the name that it has now.
        busy = durable_file.is_being_written(descriptor)
        return _Version(digest(read_whole(descriptor).data), busy)
    except (NoSuchNote, NoteUnreadable):
        return _Version(None, busy=False)
    finally:
        os.close(descriptor)


def _inode(directory: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def _as_written(descriptor: int, data: bytes) -> RawNote:
    """What was just put in place. Never settled: another program may save within the same tick of the clock."""
    return RawNote(data, FileStat.of(os.fstat(descriptor)), settled=False)


def _bad_path(path: NotePath, why: str) -> ServiceError:
    return ServiceError(ErrorCode.PATH_INVALID, f"{path.text} {why}.")
