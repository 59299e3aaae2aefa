"""`python -m services.contexts` serves; `export`, `import` and `revert` work on the database alone, with nothing running (RC-17, RC-18)."""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import asyncpg

from services.contexts import archive
from services.contexts.app import NAME, PACKAGE, serve
from services.contexts.archive import ArchiveInvalid
from services.contexts.snapshot_store import SnapshotStore
from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.migrate import migrate, revert
from shared.database.pool import Pool, open_pool
from shared.service import run
from shared.settings import DatabaseSettings, read

# Whoever sits at a command line is told, where a service would wait.
CONNECT_SECONDS = 10.0


def main() -> int:
    """The exit status: 0, or 1 (and one line) where it could not be done."""
    parser = argparse.ArgumentParser(prog="python -m services.contexts")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, what in (("export", "write all prepared contexts to a file"), ("import", "bring back what was exported, all or nothing")):
        commands.add_parser(name, help=what).add_argument("file", type=Path)
    commands.add_parser("revert", help="take back this service's tables: export first; the tables of other services stay")
    arguments = parser.parse_args()
    settings = read(DatabaseSettings)
    if arguments.command is None:
        run(NAME, settings, lambda stop: serve(settings, stop))
        return 0
    try:
        sys.stdout.write(f"{asyncio.run(_done(settings, arguments))}\n")
    except (ArchiveInvalid, ServiceError, OSError, asyncpg.InsufficientPrivilegeError) as error:
        sys.stderr.write(f"contexts: {error}\n")
        return 1
    return 0


async def _done(settings: DatabaseSettings, arguments: argparse.Namespace) -> str:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            pool = await open_pool(settings.database, NAME, size=1)
    except TimeoutError:
        raise ServiceError(ErrorCode.UNAVAILABLE, "The database does not answer.") from None
    try:
        if arguments.command == "revert":
            return f"{await revert(pool, NAME, PACKAGE)} migrations taken back"
        await migrate(pool, NAME, PACKAGE)
        if arguments.command == "export":
            return f"{await _export(pool, arguments.file)} prepared contexts exported"
        lines = archive.read(arguments.file.read_bytes())
        return f"{await SnapshotStore(pool).restore(lines)} of {len(lines)} prepared contexts imported, the others were there"
    finally:
        await pool.close()


async def _export(pool: Pool, file: Path) -> int:
    store = SnapshotStore(pool)
    until, after, records = await store.last_position(), 0, 0
    with _new_file(file) as out:
        out.write(await archive.manifest_of(store, until) + "\n")
        while after < until:
            part = await store.part(after, until)
            out.writelines(f"{line}\n" for line in part.lines)
            after, records = part.last, records + len(part.lines)
    return records


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """A file that is not there if the block fails."""
    with path.open("x", encoding="utf-8", newline="") as out:
        try:
            yield out
        except BaseException:
            path.unlink()
            raise


if __name__ == "__main__":
    sys.exit(main())
