"""Changing a vault's files: each change against a version, nothing that another program wrote ever overwritten.

A note is replaced by changing names with the new file in one step. What came out is looked at *after* that: is it not the version that
was to be replaced, or is somebody writing it, the name goes back to the latest edit. Between a look before and a rename another program
could save; here it cannot. Looked at before as well, under a lease, so that this is the rare case. The same for a move and for the trash.
What was under a note's name is removed only where it is shown to be what we wrote or what was replaced (`durable_file.discard`).

Like `vault` everything here blocks, goes by descriptors and follows no link. The caller holds the workspace's lock (`write_lock`),
which keeps our own writers apart; other programs know no lock.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from services.notes import durable_file, replacement, trash
from services.notes.durable_file import Model, digest
from services.notes.note_path import NotePath
from services.notes.place import (
    NoteBusy,
    NoteStale,
    Place,
    new_place,
    open_directory,
    opened_note,
    place_of,
    rename_new,
    require_free,
    require_new_directories,
    require_new_path,
    require_version,
)
from services.notes.vault import (
    NOTE_BYTES_MAX,
    FileStat,
    NoSuchNote,
    RawNote,
    Vault,
    VaultUnavailable,
    actual_name,
    is_absence,
    opened_directories,
    read_whole,
)
from shared.contracts.errors import ErrorCode, ServiceError

logger = logging.getLogger(__name__)

type Edit = Callable[[bytes], bytes]


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
            new_place(top, path) as place,
            durable_file.written(place.directory, data, Model.of_directory(place.directory)) as temporary,
        ):
            rename_new(place.directory, temporary.name, place)
            os.fsync(place.directory)
            return _as_written(temporary.descriptor, data)

    def require_room(self, path: NotePath) -> None:
        """Refuse a place where `create` could not make a note; nothing is made.

        Raises:
            NoteExists, VaultUnavailable, ServiceError, OSError: see there.
        """
        require_new_path(path)
        *directories, name = path.segments
        with self._entered() as top, ExitStack() as opened:
            directory = top
            for depth, below in enumerate(directories):
                actual = actual_name(directory, below)
                if not durable_file.name_is_taken(directory, actual):
                    require_new_directories(directories[depth:])
                    return
                directory = open_directory(directory, actual)
                opened.callback(os.close, directory)
            require_free(Place(top, directory, actual_name(directory, name)))

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
        with self._entered() as top, place_of(top, path) as place, opened_note(place, path) as descriptor:
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
                replacement.put_in_place(place, temporary, descriptor, current)
                return _as_written(temporary.descriptor, data)

    def move(self, path: NotePath, to: NotePath, expected: str, check: Callable[[bytes], object]) -> RawNote:
        """Give a note another path; `check` may refuse its bytes.

        Raises:
            As `replace` and `create`.
        """
        with self._entered() as top, place_of(top, path) as source, opened_note(source, path) as descriptor:
            raw = read_whole(descriptor)
            if digest(raw.data) != expected:
                raise NoteStale(digest(raw.data))
            check(raw.data)
            if path == to:
                return raw
            _require_unwritten(descriptor)
            with new_place(top, to) as target:
                rename_new(source.directory, source.name, target)
                require_version(target, source, expected)
                os.fsync(target.directory)
                os.fsync(source.directory)
                return _as_written(descriptor, raw.data)

    def trash(self, path: NotePath, expected: str) -> None:
        """Put a note into the trash, under its path or, where an earlier one lies there, a numbered one.

        Raises:
            As `replace`.
        """
        with self._entered() as top, place_of(top, path) as place:
            with opened_note(place, path) as descriptor:
                current = digest(read_whole(descriptor).data)
                if current != expected:
                    raise NoteStale(current)
                _require_unwritten(descriptor)
            *directories, name = path.segments
            try:
                trash.into_trash(place, directories, name, lambda kept: require_version(kept, place, expected))
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
                        trash.sweep(Place(top, directory, name), directories)
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


def _require_unwritten(descriptor: int) -> None:
    with durable_file.writers_of(descriptor) as writers:
        if writers() == "some":
            raise NoteBusy


def _as_written(descriptor: int, data: bytes) -> RawNote:
    """What was just put in place. Never settled: another program may save within the same tick of the clock."""
    return RawNote(data, FileStat.of(os.fstat(descriptor)), settled=False)
