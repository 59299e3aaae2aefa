"""Where notes go that are deleted, and bytes of which nobody knows whether they are needed: below the vault's `.trash`, by their paths."""

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from services.notes import durable_file
from services.notes.place import Place, made_directories, open_directory, version_of
from services.notes.vault import actual_name

logger = logging.getLogger(__name__)

TRASH = ".trash"
# File systems' limit.
FILE_NAME_BYTES_MAX = 255


def into_trash(place: Place, directories: list[str], wanted: str, check: Callable[[Place], None] = lambda _: None) -> str:
    """Rename into the trash, into these directories of it and under the first free name; which that is. `check` may undo it.

    A file system that is mounted below the vault gets a trash of its own, beside the note.
    """
    try:
        return _into_trash_of(place.top, place, directories, wanted, check)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return _into_trash_of(place.directory, place, [], wanted, check)


def _into_trash_of(top: int, place: Place, directories: list[str], wanted: str, check: Callable[[Place], None]) -> str:
    with _trash_directory(top, [TRASH, *directories]) as trash:
        number = 1
        while True:
            kept = _numbered(wanted, number)
            try:
                durable_file.rename_new(place.directory, place.name, trash, kept)
                break
            except FileExistsError:
                number += 1
        check(Place(top, trash, kept))
        os.fsync(trash)
        os.fsync(place.directory)
        return kept


@contextmanager
def _trash_directory(top: int, names: list[str]) -> Iterator[int]:
    """As `made_directories`; where something else bears a name it is numbered, as the trash holds notes and directories of any names."""
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
            directory = open_directory(directory, actual)
            opened.callback(os.close, directory)
        yield opened.enter_context(made_directories(top, chosen, trusted=True))


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


def sweep(left: Place, directories: list[str]) -> None:
    """Remove a temporary file that a crash has left, or keep it in the trash where it may be somebody's edit."""
    # Should the lock have been lost with the database, a writer may be about to exchange the file for another.
    place = Place(left.top, left.directory, durable_file.set_aside(left.directory, left.name))
    if not stat.S_IMODE(os.stat(place.name, dir_fd=place.directory, follow_symlinks=False).st_mode):
        os.unlink(place.name, dir_fd=place.directory)  # unfinished, it has never had a note's name
        return
    if durable_file.discard(place.directory, place.name, lambda found: durable_file.is_dispensable(place.name, found)):
        return
    if not version_of(place).busy:
        rescue(place, directories)


def rescue(place: Place, directories: list[str]) -> None:
    """Keep bytes of which nobody knows whether they are needed."""
    kept = into_trash(place, directories, f"rescued {durable_file.token(place.name)}.md")
    logger.warning("A version that came in between is in the trash: %s", kept)
