"""Backing up the local stack, and bringing it back on this machine or another.

    python -m local.backup save DIRECTORY        while it runs
    python -m local.backup restore DIRECTORY     into a new data directory, before it is started there

A backup holds every table as of one moment (`tables.dump`, in PostgreSQL's own format) and the files of every workspace as they were right
after that (`vaults/<directory>/`). The search engine is filled again from the tables, the streams of NATS begin anew: what they held
that had ended is in the tables. Passwords of the stores are made anew; those of accounts are among the tables.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import asyncpg

from local.errors import StartError
from local.home import Home, endpoints_of
from local.ports import free_port
from local.postgres import Postgres, find_binaries
from local.settings import LocalSettings
from local.stack import ROOT, end_predecessors
from local.supervisor import Supervisor
from shared.secret_files import SecretFileError
from shared.settings import read

TABLES = "tables.dump"
VAULTS = "vaults"
_READY_SECONDS = 60.0


def save(settings: LocalSettings, directory: Path) -> None:
    """Back up what runs on the data directory. The backup appears when it is complete.

    Raises:
        StartError: nothing runs there, or the backup cannot be written.
    """
    home = settings.home.absolute()
    url = endpoints_of(home).get("postgres")
    if url is None:
        raise StartError(f"nothing has run on {home} yet (MARGINALIA_HOME)")
    if directory.exists():
        raise StartError(f"{directory} exists already")
    vaults = asyncio.run(_served(url))
    if away := [str(root) for root in vaults.values() if not root.is_dir()]:
        raise StartError(f"these workspaces are not there just now: {', '.join(away)}")
    draft = directory.with_name(f"{directory.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _write(draft, url, vaults, settings.inherited)
        draft.rename(directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write(draft: Path, url: str, vaults: Mapping[str, Path], environment: Mapping[str, str]) -> None:
    draft.mkdir(mode=0o700, parents=True)
    _run(environment, "pg_dump", url, "--format=custom", f"--file={draft / TABLES}")
    for name, root in vaults.items():
        shutil.copytree(root, draft / VAULTS / name, symlinks=True, copy_function=_copied)


def restore(settings: LocalSettings, directory: Path) -> None:
    """Bring a backup back into a data directory that holds nothing yet. Workspaces come into its `vaults/`, wherever they lay before.

    Raises:
        StartError: the data directory is in use or holds data, or the backup is none.
    """
    if not (directory / TABLES).is_file():
        raise StartError(f"{directory} is no backup: it has no {TABLES}")
    home = Home.open(settings.home)
    try:
        if (home.path / "postgres").exists() or any((home.path / VAULTS).iterdir()):
            raise StartError(f"the data directory {home.path} holds data already; set MARGINALIA_HOME to a new one")
        if (directory / VAULTS).is_dir():
            shutil.copytree(directory / VAULTS, home.path / VAULTS, symlinks=True, dirs_exist_ok=True)
        asyncio.run(_restore_tables(home, directory / TABLES, settings.inherited))
    finally:
        home.close()


async def _restore_tables(home: Home, dump: Path, environment: Mapping[str, str]) -> None:
    await end_predecessors(home)
    postgres = Postgres(home, free_port(), home.secret("postgres"))
    supervisor = Supervisor(home, ROOT, environment, _say)
    try:
        program = await postgres.program()
        supervisor.start(program)
        await supervisor.ready([program.name], _READY_SECONDS)
        # Whose the tables are and who may read them is the new owner's to say, at each start.
        whole = ("--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error")
        await asyncio.to_thread(_run, environment, "pg_restore", postgres.url, *whole, str(dump))
    finally:
        await supervisor.stop()


async def _served(url: str) -> dict[str, Path]:
    """The files of each workspace, by its directory's name."""
    try:
        db = await asyncpg.connect(url, timeout=5)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise StartError(f"the database does not answer ({type(error).__name__}); start Marginalia first") from error
    try:
        rows = await db.fetch("SELECT directory, root FROM notes.workspaces WHERE served")
    finally:
        await db.close(timeout=2)
    return {row["directory"]: Path(row["root"]) for row in rows}


def _run(environment: Mapping[str, str], program: str, url: str, *arguments: str) -> None:
    """One of PostgreSQL's own programs on a database; its password is in no command line."""
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(netloc=f"{parts.username}@{parts.hostname}:{parts.port}"))
    command = (str(find_binaries() / program), f"--dbname={address}", *arguments)
    ended = subprocess.run(
        command, env={**environment, "PGPASSWORD": unquote(parts.password or "")}, stderr=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode != 0:
        raise StartError(" ".join(ended.stderr.split())[:500])


def _copied(source: str, target: str) -> str:
    """Copies a file; one that another program has just removed is none of the backup's."""
    try:
        return str(shutil.copy2(source, target, follow_symlinks=False))
    except FileNotFoundError:
        return target


def _say(line: str) -> None:
    sys.stderr.write(f"backup: {line}\n")


def main() -> int:
    """The exit status: 0, or 1 (and one line) where it could not be done."""
    parser = argparse.ArgumentParser(prog="python -m local.backup", description="The data directory is MARGINALIA_HOME's.")
    parser.add_argument("command", choices=("save", "restore"))
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    settings = read(LocalSettings)
    directory: Path = arguments.directory.absolute()
    try:
        if arguments.command == "save":
            save(settings, directory)
        else:
            restore(settings, directory)
    except (StartError, SecretFileError) as error:
        _say(str(error))
        return 1
    except (OSError, shutil.Error) as error:
        _say(f"{getattr(error, 'filename', None) or directory}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
