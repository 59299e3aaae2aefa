"""Puts a new version in a note's place by changing their names in one step, and undoes it where the old one was not what was expected."""

import contextlib
import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack

from services.notes import durable_file
from services.notes.durable_file import Model, Temporary, Writers
from services.notes.place import (
    WRITERS_SECONDS,
    WRITERS_STEP_SECONDS,
    NoteBusy,
    NoteStale,
    Place,
    Sight,
    hash_of,
    inode_of,
    opened_file,
    sight_of,
    version_of,
)
from services.notes.trash import rescue
from services.notes.vault import NoSuchNote

logger = logging.getLogger(__name__)

# How often names are changed back while another program goes on saving.
SWAPS_MAX = 10


def put_in_place(place: Place, temporary: Temporary, descriptor: int, replaced: str) -> None:
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
            standing = version_of(place).hash
            raise NoteBusy if standing == replaced else NoteStale(standing)
    _keep_late_edit(place, temporary, descriptor, replaced)


def _refused(place: Place, temporary: Temporary, descriptor: int, replaced: str, writers: Callable[[], Writers]) -> bool:
    """After an exchange: remove what came out, or give it its name back where it must not be replaced."""
    out = Place(place.top, place.directory, temporary.name)
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


def _keep_late_edit(place: Place, temporary: Temporary, descriptor: int, replaced: str) -> None:
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
            with opened_file(place) as ours:
                put_in_place(place, late, ours, temporary.hash)
        except (NoSuchNote, NoteStale, NoteBusy):
            rescue(Place(place.top, place.directory, late.name), [])
    raise NoteStale(version_of(place).hash)


def _settled_hash(descriptor: int) -> str | None:
    """Of a file's bytes, once nobody writes it any more, or time is up."""
    until = time.monotonic() + WRITERS_SECONDS
    while True:
        with durable_file.writers_of(descriptor) as writers:
            found = hash_of(descriptor)
            if writers() != "some" or time.monotonic() > until:
                return found
        time.sleep(WRITERS_STEP_SECONDS)


def _problem(place: Place, descriptor: int, replaced: str, writers: Callable[[], Writers]) -> Exception | None:
    """Why a version, open as `descriptor`, may not be replaced where it is to stand; None where it may."""
    inode = inode_of(place.directory, place.name)
    if inode is None:
        return NoSuchNote(place.name)
    if inode != os.fstat(descriptor).st_ino:
        return NoteStale(version_of(place).hash)
    if writers() != "some" and (current := hash_of(descriptor)) != replaced:
        return NoteStale(current)
    # Asked last as well: who opened it while it was read waits for the lease.
    return NoteBusy() if writers() == "some" else None


def _give_back(place: Place, other: Place, temporary: Temporary, replaced: str) -> None:
    """Undo an exchange: the note's name goes to the latest edit, be it in what came out (`other`), in what other programs have put there
    since, or in ours, which they may have opened by that name. The rest is removed only if it is no edit of anybody, else it is trash.
    """
    out = inode_of(other.directory, other.name)
    saved: dict[int, int] = {}

    def rank(sight: Sight) -> tuple[int, bool, int, bool]:
        ours = sight.inode == temporary.inode
        edited = sight.version.hash != (temporary.hash if ours else replaced)
        return saved.get(sight.inode, 0), edited, sight.mtime_ns if edited else 0, not ours

    with ExitStack() as held:
        for _ in range(SWAPS_MAX):
            there, here = sight_of(other, held, patient_with=temporary.inode), sight_of(place, held)
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
        rescue(other, [])
        logger.warning("%s was edited twice while it was changed; the other edit is in the trash", place.name)
    os.fsync(place.directory)


def _give_name(place: Place, other: Place, *, standing: bool) -> None:
    """A note that was deleted meanwhile comes back: what came out is newer than what the other program knew."""
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        if standing:
            durable_file.exchange(place.directory, other.name, place.name)
        else:
            durable_file.rename_new(other.directory, other.name, place.directory, place.name)
