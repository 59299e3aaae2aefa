"""A process that writes notes until it is killed, with the real writer and no service around it.

calls DIRECTORY WHAT FIRST LAST   for each number in between: in a process of its own, in DIRECTORY/<number>, one change whose
                                  number-th system call is its last
chain DIRECTORY                   change after change; a line on stdout for each that is acknowledged
"""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from services.notes import durable_file, place, replacement, trash, vault, vault_writer
from services.notes.durable_file import digest
from services.notes.note_path import NotePath
from services.notes.vault import Vault
from services.notes.vault_writer import VaultWriter
from tests.support.interrupted_system import CHANGING, LOOKING, Interrupted

MODULES = [durable_file, place, replacement, trash, vault, vault_writer]
SIZE = 20_000


def body(number: int) -> bytes:
    """A version that tells whether it is whole."""
    return b"version %d\n" % number + b"%09d\n" % number * (SIZE // 10) + b"end %d" % number


def one_change(directory: Path, what: str) -> None:
    """Of `a.md`, which is version 1."""
    writer, path = VaultWriter(Vault(directory), None), NotePath("a.md")
    if what == "replace by a link":  # as where names cannot change in one step
        durable_file._renameat2 = lambda *_: False  # type: ignore[assignment]
    if what.startswith("replace"):
        writer.replace(path, lambda _: body(2), digest(body(1)))
    elif what == "create":
        writer.create(NotePath("sub/b.md"), body(2))
    elif what == "move":
        writer.move(path, NotePath("sub/b.md"), digest(body(1)), lambda _: None)
    else:
        writer.trash(path, digest(body(1)))


def _die() -> BaseException:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def each_call(directory: Path, what: str, first: int, last: int) -> None:
    """Print `<number> <calls made>`, the second 0 where the process was killed."""
    for number in range(first, last + 1):
        if (pid := os.fork()) == 0:
            system = Interrupted.install(pytest.MonkeyPatch(), MODULES, number, _die, CHANGING | LOOKING)
            one_change(directory / str(number), what)
            os._exit(min(len(system.called), 255))
        _, status = os.waitpid(pid, 0)
        print(number, 0 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)  # noqa: T201


def chain(directory: Path) -> None:
    """Replace one note for ever, and create, move and trash others beside it."""
    writer, path, number = VaultWriter(Vault(directory), None), NotePath("a.md"), 1
    while True:
        writer.replace(path, lambda _, number=number: body(number + 1), digest(body(number)))  # type: ignore[misc]
        number += 1
        _acknowledge("replaced", number)
        writer.create(NotePath(f"d{number % 7}/{number}.md"), body(number))
        _acknowledge("created", number)
        if number % 3 == 0:
            writer.trash(NotePath(f"d{number % 7}/{number}.md"), digest(body(number)))
            _acknowledge("trashed", number)


def _acknowledge(what: str, number: int) -> None:
    print(what, number, flush=True)  # noqa: T201
    # The next change would make this one durable, too: a cut has to fall between them.
    time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "calls":
        each_call(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        chain(Path(sys.argv[2]))
