"""A name in a directory of a vault, held by the directory's descriptor, and what stands under it.

Everything here blocks, and follows no link.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from services.notes import durable_file
from services.notes.durable_file import digest
from services.notes.note_path import NotePath, new_name_problem
from services.notes.vault import (
    DEPTH_MAX,
    DIRECTORY_FLAGS,
    FILE_FLAGS,
    PATH_BYTES_MAX,
    NoSuchNote,
    NoteUnreadable,
    actual_name,
    directory_of_note,
    is_absence,
    open_note,
    read_whole,
)
from shared.contracts.errors import ErrorCode, ServiceError

logger = logging.getLogger(__name__)

# A program that opened our version while it stood under the note's name is given so long to write and close.
WRITERS_SECONDS = 0.2
WRITERS_STEP_SECONDS = 0.005


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
class Version:
    """What a file is now: `hash` None where it is none to read."""

    hash: str | None
    busy: bool


@dataclass(frozen=True, slots=True)
class Sight:
    """What stands under a name, links and directories included."""

    inode: int
    mtime_ns: int
    version: Version


@dataclass(frozen=True, slots=True)
class Place:
    """An open directory of a vault, and a name in it as it is spelled on the disk."""

    top: int
    directory: int
    name: str


@contextmanager
def place_of(top: int, path: NotePath) -> Iterator[Place]:
    """Where a note lies."""
    if not path.names_a_note:
        raise NoSuchNote(path.text)
    with directory_of_note(top, path) as directory:
        yield Place(top, directory, actual_name(directory, path.segments[-1]))


@contextmanager
def new_place(top: int, path: NotePath) -> Iterator[Place]:
    """Where a note is to be; its directories are made, and go again if it does not come."""
    require_new_path(path)
    *directories, name = path.segments
    with made_directories(top, directories) as directory:
        place = Place(top, directory, actual_name(directory, name))
        require_free(place)
        yield place


def require_free(place: Place) -> None:
    """Refuse a name that something bears. Raises `NoteExists`."""
    if durable_file.name_is_taken(place.directory, place.name):
        raise NoteExists(version_of(place).hash)


def require_new_path(path: NotePath) -> None:
    """Refuse a path that no new note may have, whatever lies there.

    Raises:
        ServiceError: `path_invalid`.
    """
    if not path.names_a_note:
        raise _bad_path(
            path, "has no name that a note can have: it ends in .md or .markdown, and lies in no directory with a dot before it"
        )
    if len(path.segments) > DEPTH_MAX or len(path.text.encode()) > PATH_BYTES_MAX:
        raise _bad_path(path, "is too long or too deep")
    if problem := new_name_problem(path.segments[-1]):
        raise _bad_path(path, f"has a name that {problem}")


@contextmanager
def opened_note(place: Place, path: NotePath) -> Iterator[int]:
    """A note's file, for reading."""
    descriptor = open_note(place.directory, place.name, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def made_directories(top: int, names: list[str], *, trusted: bool = False) -> Iterator[int]:
    """The directory that these names lead to; those that are missing are made, durable, and removed again where the block fails."""
    made: list[tuple[str, int]] = []
    directory = top
    with ExitStack() as opened:
        try:
            for name in names:
                actual = actual_name(directory, name)
                if not durable_file.name_is_taken(directory, actual):
                    if not trusted:
                        require_new_directories([name])
                    _make_directory(directory, actual)
                    made.append((actual, directory))
                directory = open_directory(directory, actual)
                opened.callback(os.close, directory)
            yield directory
        except BaseException:
            for name, parent in reversed(made):
                _remove_directory(name, parent)
            raise


def require_new_directories(names: Iterable[str]) -> None:
    """Refuse names that no new directory may have. Raises `ServiceError`: `path_invalid`."""
    for name in names:
        if problem := new_name_problem(name):
            raise ServiceError(ErrorCode.PATH_INVALID, f"The path has a directory whose name {problem}.")


def open_directory(parent: int, name: str) -> int:
    """A descriptor of a directory. Raises `ServiceError`: `path_invalid`, where the name is a link's or another thing's."""
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


def rename_new(source: int, name: str, target: Place) -> None:
    """Give a file a name that nothing bears. Raises `NoteExists`, `NoSuchNote`."""
    try:
        durable_file.rename_new(source, name, target.directory, target.name)
    except FileExistsError:
        raise NoteExists(version_of(target).hash) from None
    except FileNotFoundError:
        raise NoSuchNote(name) from None


def require_version(moved: Place, source: Place, expected: str) -> None:
    """Undo a rename whose file is another version than was asked for, or is being written."""
    found = version_of(moved)
    if found == Version(expected, busy=False):
        return
    try:
        durable_file.rename_new(moved.directory, moved.name, source.directory, source.name)
    except FileExistsError:
        logger.warning("%s was saved anew while it was moved; both versions are kept", source.name)
    raise NoteBusy if found.hash == expected else NoteStale(found.hash)


def sight_of(place: Place, held: ExitStack, patient_with: int | None = None) -> Sight | None:
    """What stands there. `held` keeps its inode's number from being given to another file. `patient_with`: a file whose writers are
    given time to end.
    """
    until = time.monotonic() + WRITERS_SECONDS
    while True:
        try:
            descriptor = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory)
        except FileNotFoundError:
            return None
        held.callback(os.close, descriptor)
        found = os.fstat(descriptor)
        version = version_of(place)
        if not version.busy or found.st_ino != patient_with or time.monotonic() > until:
            return Sight(found.st_ino, found.st_mtime_ns, version)
        time.sleep(WRITERS_STEP_SECONDS)


def version_of(place: Place) -> Version:
    """What stands there now, through no link."""
    try:
        with opened_file(place) as descriptor, durable_file.writers_of(descriptor) as writers:
            found = hash_of(descriptor)
            return Version(found, busy=found is not None and writers() == "some")
    except NoSuchNote:
        return Version(None, busy=False)


@contextmanager
def opened_file(place: Place) -> Iterator[int]:
    """Whatever file stands there, for reading. Raises `NoSuchNote`."""
    try:
        descriptor = os.open(place.name, FILE_FLAGS, dir_fd=place.directory)
    except OSError as error:
        if is_absence(error):
            raise NoSuchNote(place.name) from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def hash_of(descriptor: int) -> str | None:
    """None where it is no note's file."""
    try:
        return digest(read_whole(descriptor).data)
    except (NoSuchNote, NoteUnreadable):
        return None


def inode_of(directory: int, name: str) -> int | None:
    """The number of what bears the name, a link itself included; None where nothing does."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def _bad_path(path: NotePath, why: str) -> ServiceError:
    return ServiceError(ErrorCode.PATH_INVALID, f"{path.text} {why}.")
