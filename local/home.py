"""The data directory, `$MARGINALIA_HOME`: its lock, its secrets, and what it tells other programs.

lock             held by the one supervisor that uses the directory; holds its process id
endpoints.json   addresses of the stores and servers, credentials included (0600)
admin-password   the first password of the account `admin` (0600)
run/<name>.pid   one for every process that is running
logs/<name>.log  what each process says
secrets/<name>   passwords of the embedded stores (0600)
nats/ postgres/ qdrant/ vaults/   what the stores and services keep
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path

from local.errors import StartError
from shared.credentials import password, write_private

_LOG_LIMIT = 10 * 1024 * 1024


class Home:
    """A data directory that this process alone uses, until `close`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> "Home":
        """Makes the directory (0700) where it is missing and locks it.

        Raises `StartError` where it cannot be written to, or where another instance holds it.
        """
        path = path.absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for part in ("run", "logs", "secrets", "vaults"):
                (path / part).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StartError(f"the data directory {path} cannot be written to: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            raise StartError(
                f"another Marginalia (process {owner or 'unknown'}) uses the data directory {path};"
                " stop it, or set MARGINALIA_HOME to another directory"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return cls(path, lock)

    def close(self) -> None:
        """Gives the directory up."""
        os.close(self._lock)

    def secret(self, name: str) -> str:
        """The stored secret of that name, made at its first use; safe inside a URL."""
        return password(self.secrets / name)[0]

    @property
    def secrets(self) -> Path:
        """Where the passwords of the embedded stores lie."""
        return self.path / "secrets"

    @property
    def admin_password_file(self) -> Path:
        """Where the first password of the account `admin` is kept."""
        return self.path / "admin-password"

    def admin_password(self) -> tuple[str, bool]:
        """The first password of the account `admin`, and whether it was made just now."""
        return password(self.admin_password_file)

    def read_endpoints(self) -> dict[str, str]:
        """What `write_endpoints` wrote last, also by an earlier run; empty where there is nothing readable."""
        return endpoints_of(self.path)

    def write_endpoints(self, endpoints: Mapping[str, str]) -> None:
        """Publishes the addresses of the stack, for tools and dashboards."""
        write_private(self.path / "endpoints.json", json.dumps(dict(endpoints), indent=2) + "\n")

    def pid_file(self, name: str) -> Path:
        """Where the process id of the program of that name stands while it runs."""
        return self.path / "run" / f"{name}.pid"

    def write_pid(self, name: str, pid: int) -> None:
        """Says that the program of that name runs."""
        write_private(self.pid_file(name), f"{pid}\n")

    def remove_pid(self, name: str) -> None:
        """Says that it has ended."""
        self.pid_file(name).unlink(missing_ok=True)

    def log_file(self, name: str) -> Path:
        """Where the output of the program of that name goes."""
        return self.path / "logs" / f"{name}.log"

    def open_log(self, name: str) -> int:
        """A descriptor to append to the log of that name; a log over 10 MB becomes `<name>.log.1` first."""
        path = self.log_file(name)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > _LOG_LIMIT:
                path.replace(path.with_name(path.name + ".1"))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def log_tail(self, name: str, lines: int) -> list[str]:
        """The last lines of a log, without empty ones."""
        try:
            with self.log_file(name).open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 16_384))
                text = log.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip()][-lines:]


def endpoints_of(path: Path) -> dict[str, str]:
    """What a data directory says of its stack's addresses; empty where it says nothing readable."""
    try:
        found = json.loads((path / "endpoints.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(url) for name, url in found.items()} if isinstance(found, dict) else {}
