"""Changing a vault's files: each change against a version, nothing that another program wrote ever overwritten.

A note is replaced by changing names with the new file in one step. What came out is looked at *after* that: is it not the version that
was to be replaced, or is somebody writing it, the name goes back to the latest edit. Between a look before and a rename another program
could save; here it cannot. Looked at before as well, under a lease, so that this is the rare case. The same for a move and for the trash.
What was under a note's name is removed only where it is shown to be what we wrote or what was replaced (`durable_file.discard`).

Like `vault` everything here blocks, goes by descriptors and follows no link. The caller holds the workspace's lock (`write_lock`),
which keeps our own writers apart; other programs know no lock.
"""

import contextlib
import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from services.notes import durable_file
from services.notes.durable_file import Model, Temporary, Writers, digest
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
# A program that opened our version while it stood under the note's name is given so long to write and close.
WRITERS_SECONDS = 0.2
WRITERS_STEP_SECONDS = 0.005
# File systems' limit.
FILE_NAME_BYTES_MAX = 255

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
class _Sight:
    """What stands under a name, links and directories included."""

    inode: int
    mtime_ns: int
    version: _Version


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
        require_size(data)
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
        with self._entered() as top, _place_of(top, path) as place, _opened(place, path) as descriptor:
            raw = read_whole(descriptor)
            current = digest(raw.data)
            if expected not in (None, current):
                raise NoteStale(current)
            data = edit(raw.data)
            if data == raw.data:
                # Whoever put it there, a change of ours that a crash cut short perhaps: it is answered for as any other.
                os.fsync(descriptor)
                os.fsync(place.directory)
                return raw
            require_size(data)
            _require_unwritten(descriptor)
            with durable_file.written(place.directory, data, Model.of_file(descriptor), current) as temporary:
                _put_in_place(place, temporary, descriptor, current)
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
            _require_unwritten(descriptor)
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
                _require_unwritten(descriptor)
            *directories, name = path.segments
            try:
                _into_trash(place, directories, name, lambda kept: _require_version(kept, place, expected))
            except FileNotFoundError:
                raise NoSuchNote(path.text) from None

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


def require_size(data: bytes) -> None:
    """Refuse what is too long for a note.

    Raises:
        ServiceError: `too_large`.
    """
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
    require_new_path(path)
    *directories, name = path.segments
    with _made_directories(top, directories) as directory:
        place = _Place(top, directory, actual_name(directory, name))
        if durable_file.name_is_taken(directory, place.name):
            raise NoteExists(_version(place).hash)
        yield place


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


def _require_unwritten(descriptor: int) -> None:
    with durable_file.writers_of(descriptor) as writers:
        if writers() == "some":
            raise NoteBusy


def _put_in_place(place: _Place, temporary: Temporary, descriptor: int, replaced: str) -> None:
    """`descriptor`: of the version that is to be replaced, which nobody can change in place meanwhile where there are leases."""
    with durable_file.writers_of(descriptor) as writers:
        if problem := _problem(place, descriptor, replaced, writers):
            raise problem
        try:
            exchanged = durable_file.exchange(place.directory, temporary.name, place.name)
        except FileNotFoundError:
            raise NoSuchNote(place.name) from None
        temporary.named = True
        if not exchanged:
            # Where names cannot change, not even by a link, the look before has to do.
            os.rename(temporary.name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            os.fsync(place.directory)
        elif _refused(place, temporary, descriptor, replaced, writers):
            standing = _version(place).hash
            raise NoteBusy if standing == replaced else NoteStale(standing)
    _keep_late_edit(place, temporary, descriptor, replaced)


def _refused(place: _Place, temporary: Temporary, descriptor: int, replaced: str, writers: Callable[[], Writers]) -> bool:
    """After an exchange: remove what came out, or give it its name back where it must not be replaced."""
    out = _Place(place.top, place.directory, temporary.name)
    try:
        # At once, since our version may have to go; and again, since who had found the old file may only now have opened it.
        refused = _problem(out, descriptor, replaced, writers)
        if refused is None:
            os.fsync(place.directory)
            refused = _problem(out, descriptor, replaced, writers)
        if refused is None:
            os.unlink(temporary.name, dir_fd=place.directory)
            return False
    except OSError:
        _give_back(place, out, temporary, replaced)
        raise
    _give_back(place, out, temporary, replaced)
    return True


def _keep_late_edit(place: _Place, temporary: Temporary, descriptor: int, replaced: str) -> None:
    """Who had found the replaced file by its name, but opened it only when that was over, writes into what has no name any more. Its bytes
    come back: under the note's name if that still is our version, else into the trash.

    Raises:
        NoteStale: there was such an edit.
    """
    if _settled_hash(descriptor) == replaced:
        return
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        data = file.read()
    with durable_file.written(place.directory, data, Model.of_file(descriptor), temporary.hash) as late:
        try:
            with _opened_file(place) as ours:
                _put_in_place(place, late, ours, temporary.hash)
        except (NoSuchNote, NoteStale, NoteBusy):
            _rescue(_Place(place.top, place.directory, late.name), [])
    raise NoteStale(_version(place).hash)


def _settled_hash(descriptor: int) -> str | None:
    """Of a file's bytes, once nobody writes it any more, or time is up."""
    until = time.monotonic() + WRITERS_SECONDS
    while True:
        with durable_file.writers_of(descriptor) as writers:
            found = _hash(descriptor)
            if writers() != "some" or time.monotonic() > until:
                return found
        time.sleep(WRITERS_STEP_SECONDS)


def _problem(place: _Place, descriptor: int, replaced: str, writers: Callable[[], Writers]) -> Exception | None:
    """Why a version, open as `descriptor`, may not be replaced where it is to stand; None where it may."""
    inode = _inode(place.directory, place.name)
    if inode is None:
        return NoSuchNote(place.name)
    if inode != os.fstat(descriptor).st_ino:
        return NoteStale(_version(place).hash)
    if writers() != "some" and (current := _hash(descriptor)) != replaced:
        return NoteStale(current)
    # Asked last as well: who opened it while it was read waits for the lease.
    return NoteBusy() if writers() == "some" else None


def _give_back(place: _Place, other: _Place, temporary: Temporary, replaced: str) -> None:
    """Undo an exchange: the note's name goes to the latest edit, be it in what came out (`other`), in what other programs have put there
    since, or in ours, which they may have opened by that name. The rest is removed only if it is no edit of anybody, else it is trash.
    """
    out = _inode(other.directory, other.name)
    saved: dict[int, int] = {}

    def rank(sight: _Sight) -> tuple[int, bool, int, bool]:
        ours = sight.inode == temporary.inode
        edited = sight.version.hash != (temporary.hash if ours else replaced)
        return saved.get(sight.inode, 0), edited, sight.mtime_ns if edited else 0, not ours

    with ExitStack() as held:
        for _ in range(SWAPS_MAX):
            there, here = _sight(other, held, patient_with=temporary.inode), _sight(place, held)
            if there is None:
                break
            for sight in (there, here):
                # Another program has put it there after us: it is held by that program to have replaced all others.
                if sight is not None and sight.inode not in (temporary.inode, out):
                    saved.setdefault(sight.inode, len(saved) + 1)
            if here is not None and rank(there) <= rank(here):
                break
            _give_name(place, other, standing=here is not None)
    if not durable_file.discard(other.directory, other.name, lambda found: found in (temporary.hash, replaced)):
        _rescue(other, [])
        logger.warning("%s was edited twice while it was changed; the other edit is in the trash", place.name)
    os.fsync(place.directory)


def _give_name(place: _Place, other: _Place, *, standing: bool) -> None:
    """A note that was deleted meanwhile comes back: what came out is newer than what the other program knew."""
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        if standing:
            durable_file.exchange(place.directory, other.name, place.name)
        else:
            durable_file.rename_new(other.directory, other.name, place.directory, place.name)


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


def _into_trash(place: _Place, directories: list[str], wanted: str, check: Callable[[_Place], None] = lambda _: None) -> str:
    """Rename into the trash, into these directories of it and under the first free name; which that is. `check` may undo it.

    A file system that is mounted below the vault gets a trash of its own, beside the note.
    """
    try:
        return _into_trash_of(place.top, place, directories, wanted, check)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return _into_trash_of(place.directory, place, [], wanted, check)


def _into_trash_of(top: int, place: _Place, directories: list[str], wanted: str, check: Callable[[_Place], None]) -> str:
    with _trash_directory(top, [TRASH, *directories]) as trash:
        number = 1
        while True:
            kept = _numbered(wanted, number)
            try:
                durable_file.rename_new(place.directory, place.name, trash, kept)
                break
            except FileExistsError:
                number += 1
        check(_Place(top, trash, kept))
        os.fsync(trash)
        os.fsync(place.directory)
        return kept


@contextmanager
def _trash_directory(top: int, names: list[str]) -> Iterator[int]:
    """As `_made_directories`; where something else bears a name it is numbered, as the trash holds notes and directories of any names."""
    chosen: list[str] = []
    with ExitStack() as opened:
        directory = top
        for name in names:
            number = 1
            while not _may_be_directory(directory, actual := actual_name(directory, _numbered(name, number))):
                number += 1
            chosen.append(actual)
            if not durable_file.name_is_taken(directory, actual):
                chosen += names[len(chosen) :]
                break
            directory = _open_directory(directory, actual)
            opened.callback(os.close, directory)
        yield opened.enter_context(_made_directories(top, chosen, trusted=True))


def _may_be_directory(parent: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return True


def _numbered(name: str, number: int) -> str:
    """A name, or the second, third, … of it, no longer than a file system allows."""
    if number == 1:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    end = f" {number}{dot}{suffix}"
    return stem.encode()[: FILE_NAME_BYTES_MAX - len(end.encode())].decode(errors="ignore") + end


def _sweep(left: _Place, directories: list[str]) -> None:
    # Should the lock have been lost with the database, a writer may be about to exchange the file for another.
    place = _Place(left.top, left.directory, durable_file.set_aside(left.directory, left.name))
    if not stat.S_IMODE(os.stat(place.name, dir_fd=place.directory, follow_symlinks=False).st_mode):
        os.unlink(place.name, dir_fd=place.directory)  # unfinished, it has never had a note's name
        return
    if durable_file.discard(place.directory, place.name, lambda found: durable_file.is_dispensable(place.name, found)):
        return
    if not _version(place).busy:
        _rescue(place, directories)


def _rescue(place: _Place, directories: list[str]) -> None:
    """Keep bytes of which nobody knows whether they are needed."""
    kept = _into_trash(place, directories, f"rescued {durable_file.token(place.name)}.md")
    logger.warning("A version that came in between is in the trash: %s", kept)


def _sight(place: _Place, held: ExitStack, patient_with: int | None = None) -> _Sight | None:
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
        version = _version(place)
        if not version.busy or found.st_ino != patient_with or time.monotonic() > until:
            return _Sight(found.st_ino, found.st_mtime_ns, version)
        time.sleep(WRITERS_STEP_SECONDS)


def _version(place: _Place) -> _Version:
    try:
        with _opened_file(place) as descriptor, durable_file.writers_of(descriptor) as writers:
            found = _hash(descriptor)
            return _Version(found, busy=found is not None and writers() == "some")
    except NoSuchNote:
        return _Version(None, busy=False)


@contextmanager
def _opened_file(place: _Place) -> Iterator[int]:
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


def _hash(descriptor: int) -> str | None:
    """None where it is no note's file."""
    try:
        return digest(read_whole(descriptor).data)
    except (NoSuchNote, NoteUnreadable):
        return None


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
