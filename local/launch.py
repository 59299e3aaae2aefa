"""Becomes another program that ends with its parent, and if asked under another user or only while the processor has nothing else to do.

Run as a file, before the program, instead of as a `preexec_fn`: Python code between fork and exec can deadlock, and a
file can be tried by hand. The process id stays the same. Standard library only, so that it costs 20 ms.

    python -I -S launch.py [--user UID:GID] [--idle] [--death-signal N] --parent PID -- command argument...
"""

import argparse
import ctypes
import os
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityWord(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def become_user(user: int, group: int) -> None:
    """Gives up root for that user, and keeps only the right to read: the data directory may lie below /root.

    PostgreSQL refuses to run as root. An ambient capability outlives exec and counts as nothing unusual to the
    loader, unlike a set-uid program. The user owns what it writes, so it needs no right to write elsewhere.
    """
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    mask = 1 << _CAP_DAC_READ_SEARCH
    words = (_CapabilityWord * 2)(_CapabilityWord(mask, mask, mask), _CapabilityWord(0, 0, 0))
    _check(_libc.capset(ctypes.byref(_CapabilityHeader(_CAPABILITY_VERSION_3, 0)), words))
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH)


def end_with_parent(parent: int, death_signal: int) -> None:
    """Has the kernel send `death_signal` when the parent dies; ends at once where it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        sys.exit(1)


def main(arguments: Sequence[str]) -> None:
    """Becomes the command; returns only by `SystemExit`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", metavar="UID:GID")
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--death-signal", type=int, default=9)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if options.idle:
        # At the lowest of the usual priorities a program that computes still makes the others wait for its slices.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if options.user:
        user, _, group = options.user.partition(":")
        become_user(int(user), int(group))
    # After the change of user, which clears it.
    end_with_parent(options.parent, options.death_signal)
    try:
        os.execvp(options.command[0], options.command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"cannot run {options.command[0]}: {error.strerror}")


def _prctl(option: int, *values: int) -> None:
    padded = (*values, 0, 0, 0, 0)[:4]
    _check(_libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(sys.argv[1:])
