"""Files that are there wholly or not at all: written under a temporary name, made durable, and put in place by one rename.

A temporary name tells what its file is, so that whoever finds it after a crash knows what to do with it: the hash of the version it was
to replace, and the hash of the new one. While it is being written it has mode 0.

What another program may have written is never removed: a file that has borne a note's name goes only where its bytes are known and a lease
shows that nobody has it open.
"""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# Errors by which a file system says that it does not know an operation.
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY})

MOUNTS = Path("/proc/self/mountinfo")
# Their clients answer EAGAIN to a lease wherever the server has not lent them the file, whoever has it open.
_REMOTE = frozenset({"nfs4", "cifs", "smb3", "ceph"})
_NOREPLACE, _EXCHANGE = 1, 2
_NAME = re.compile(r"\.marginalia-(?P<token>[0-9a-f]{12})\.(?P<replaced>[0-9a-f]{16}|new)-(?P<written>[0-9a-f]{16})")
_libc = ctypes.CDLL(None, use_errno=True)


# `unknown` where the file system has no leases, or the file is another user's.
type Writers = Literal["none", "some", "unknown"]


@dataclass(slots=True)
class Temporary:
    """A whole, durable file under its temporary name. `descriptor` is for its stat alone: an open one would count as a writer.
    `named`: it has borne a note's name, by which another program may have opened it.
    """

    name: str
    inode: int
    hash: str
    descriptor: int
    named: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """The file that a new one is to resemble: its mode and owner, and its extended attributes (access lists among them)."""

    mode: int
    uid: int
    gid: int
    attributes: dict[str, bytes]

    @classmethod
    def of_file(cls, descriptor: int) -> "Model":
        """A version that is to be replaced."""
        found = os.fstat(descriptor)
        return cls(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, dict(_attributes(descriptor)))

    @classmethod
    def of_directory(cls, descriptor: int) -> "Model":
        """What a new file in a directory inherits: who may read and write there may do so with it, and it is its owner's."""
        found = os.fstat(descriptor)
        return cls(stat.S_IMODE(found.st_mode) & 0o666, found.st_uid, found.st_gid, {})

    def impress(self, descriptor: int) -> None:
        """Make an open file like this one, as far as this process and the file system may."""
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, self.uid, self.gid)
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, self.mode)
        for name, value in self.attributes.items():
            try:
                os.setxattr(descriptor, name, value)
            except OSError as error:
                if error.errno not in {*UNSUPPORTED, errno.EPERM, errno.EACCES}:
                    raise


def digest(data: bytes) -> str:
    """The name of a version: SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def is_temporary(name: str) -> bool:
    """Whether a file of that name is one of ours, in use or left behind."""
    return _NAME.fullmatch(name) is not None


def token(name: str) -> str:
    """What is unique about a temporary name."""
    found = _NAME.fullmatch(name)
    assert found is not None
    return found["token"]


def is_dispensable(name: str, data_digest: str) -> bool:
    """Whether a temporary file that a crash has left holds the version that it was made with, or the one that was replaced. Anything
    else is an edit of another program that came in between.
    """
    found = _NAME.fullmatch(name)
    return found is not None and data_digest[:16] in (found["replaced"], found["written"])


@contextmanager
def written(directory: int, data: bytes, model: Model, replaced: str | None = None) -> Iterator[Temporary]:
    """A temporary file with these bytes, on the disk for good. At the end of the block it is gone, if it still is ours.

    Raises:
        OSError: it could not be written; nothing of it is left.
    """
    wanted = digest(data)
    name = _temporary_name(replaced[:16] if replaced else "new", wanted[:16])
    _make(directory, name, data, model)
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        temporary = Temporary(name, os.fstat(descriptor).st_ino, wanted, descriptor)
        yield temporary
    finally:
        os.close(descriptor)
        # What cannot be shown to be ours stays for the sweep, which keeps it.
        discard(directory, name, lambda found: found == wanted, proven=temporary.named)


def discard(directory: int, name: str, is_known: Callable[[str], bool], *, proven: bool = True) -> bool:
    """Remove a file whose digest is known and which nobody has open for writing; `proven`: a lease must say so. False where it stays."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # a link, or nothing that may be read
    try:
        with writers_of(descriptor) as writers:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not is_known(_digest_of(descriptor)):
                return False
            # Asked last: who has opened it meanwhile waits for the lease, and has not written yet.
            if writers() not in (("none",) if proven else ("none", "unknown")):
                return False
            with contextlib.suppress(FileNotFoundError):  # set aside
                os.unlink(name, dir_fd=directory)
            return True
    finally:
        os.close(descriptor)


def rename_new(source: int, name: str, target: int, new_name: str) -> None:
    """Rename where nothing bears the new name.

    Raises:
        FileExistsError: something does.
        OSError: anything else.
    """
    if _renameat2(source, name, target, new_name, _NOREPLACE):
        return
    try:
        os.link(name, new_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {*UNSUPPORTED, errno.EPERM, errno.EMLINK}:
            raise
        # Neither renameat2 nor links, as on FAT. The caller's lock keeps our own writers apart.
        if name_is_taken(target, new_name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name) from None
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    else:
        os.unlink(name, dir_fd=source)


def exchange(directory: int, name: str, other: str) -> bool:
    """Let a temporary file and another one change names, which is never in no place; false where the file system cannot.

    Where it cannot in one step a link keeps what the temporary file replaces. What other programs put there between that and the
    replacement is lost; what they write into it is not.

    Raises:
        OSError: one of them is not there, or the disk fails.
    """
    if _renameat2(directory, name, directory, other, _EXCHANGE):
        return True
    aside = _another_name(name)
    try:
        os.link(other, aside, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno in {*UNSUPPORTED, errno.EPERM, errno.EMLINK}:
            return False
        raise
    try:
        os.rename(name, other, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(aside, dir_fd=directory)
        raise
    os.rename(aside, name, src_dir_fd=directory, dst_dir_fd=directory)
    return True


def set_aside(directory: int, name: str) -> str:
    """Give a temporary file another temporary name, which is returned: nobody else knows it, so that what bears it is what was looked at.

    Raises:
        OSError: it is not there, or the disk fails.
    """
    aside = _another_name(name)
    rename_new(directory, name, directory, aside)
    return aside


def name_is_taken(directory: int, name: str) -> bool:
    """Whether anything bears a name, links included."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def writers_of(descriptor: int) -> Iterator[Callable[[], Writers]]:
    """Tells, whenever it is asked within the block, whether any program has this file open for writing.

    A read lease is granted only where nobody has. Who opens the file for writing after that waits until the block ends, and counts as one
    who has. The signal that would tell of it is one that is ignored by default.
    """
    refused: Writers | None = None
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        refused = "some" if error.errno == errno.EAGAIN and not _is_remote(descriptor) else "unknown"

    def writers() -> Writers:
        if refused is not None:
            return refused
        return "none" if fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK else "some"

    try:
        yield writers
    finally:
        if refused is None:
            with contextlib.suppress(OSError):  # broken, after the system's time
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _is_remote(descriptor: int) -> bool:
    """Whether the file's server may refuse a lease for reasons of its own."""
    device = os.fstat(descriptor).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    # proc(5): ID, parent, device, …, a dash, type, …
    return any(line.split(" ", 3)[2] == wanted and line.partition(" - ")[2].split(" ", 1)[0] in _REMOTE for line in mounts)


def _renameat2(source: int, name: str, target: int, new_name: str, flags: int) -> bool:
    if not hasattr(_libc, "renameat2"):
        return False
    if _libc.renameat2(source, os.fsencode(name), target, os.fsencode(new_name), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), name)


def _temporary_name(replaced: str, written: str) -> str:
    return f".marginalia-{secrets.token_hex(6)}.{replaced}-{written}"


def _another_name(name: str) -> str:
    found = _NAME.fullmatch(name)
    assert found is not None
    return _temporary_name(found["replaced"], found["written"])


def _write_whole(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _make(directory: int, name: str, data: bytes, model: Model) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0, dir_fd=directory)
    try:
        try:
            _write_whole(descriptor, data)
            model.impress(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=directory)
        raise


def _digest_of(descriptor: int) -> str:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _attributes(descriptor: int) -> Iterator[tuple[str, bytes]]:
    try:
        for name in os.listxattr(descriptor):
            with contextlib.suppress(PermissionError):
                yield name, os.getxattr(descriptor, name)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
