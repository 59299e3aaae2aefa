"""`python -m services.notes` serves; `… believe DIRECTORY` ends an outage that is none (ADR 10), `… rebuild DIRECTORY` has the index of
a workspace made anew from its files.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from services.notes import workspaces
from services.notes.app import NAME, serve
from services.notes.settings import NotesSettings
from services.notes.workspaces import VaultsError
from shared.database.pool import Pool, open_pool
from shared.service import run
from shared.settings import read


def main() -> int:
    """The exit status: 0 after a stop that was asked for, 1 (and one line) where it could not start."""
    parser = argparse.ArgumentParser(prog="python -m services.notes")
    commands = parser.add_subparsers(dest="command", metavar="command")
    believing = commands.add_parser("believe", help="take the notes that are missing from a workspace for deleted")
    rebuilding = commands.add_parser("rebuild", help="make the index of a workspace anew from its files")
    for command in (believing, rebuilding):
        command.add_argument("directory", help="the workspace's directory name")
    arguments = parser.parse_args()
    settings = read(NotesSettings)
    if arguments.command == "believe":
        return asyncio.run(believe(settings, arguments.directory))
    if arguments.command == "rebuild":
        return asyncio.run(rebuild(settings, arguments.directory))
    try:
        run(NAME, settings, lambda stop: serve(settings, stop))
    except VaultsError as error:
        sys.stderr.write(f"notes: {error}\n")
        return 1
    return 0


async def believe(settings: NotesSettings, directory: str) -> int:
    """Tell the running service; the exit status is 1 where the workspace has no loss that is held to be an outage."""
    return await _tell(settings, workspaces.believe, directory, f"no workspace {directory} is held to be unavailable")


async def rebuild(settings: NotesSettings, directory: str) -> int:
    """Tell the running service; the exit status is 1 where it serves no such workspace."""
    return await _tell(settings, workspaces.rebuild, directory, f"no workspace {directory} is served")


async def _tell(settings: NotesSettings, tell: Callable[[Pool, str], Awaitable[bool]], directory: str, otherwise: str) -> int:
    pool = await open_pool(settings.database, NAME, size=1)
    try:
        if await tell(pool, directory):
            return 0
        sys.stderr.write(f"notes: {otherwise}\n")
        return 1
    finally:
        await pool.close()


if __name__ == "__main__":
    sys.exit(main())
