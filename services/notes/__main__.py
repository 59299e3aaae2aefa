"""`python -m services.notes` serves; `python -m services.notes believe DIRECTORY` ends an outage that is none (ADR 10)."""

import argparse
import asyncio
import sys

from services.notes import workspaces
from services.notes.app import NAME, serve
from services.notes.settings import NotesSettings
from services.notes.workspaces import VaultsError
from shared.database.pool import open_pool
from shared.service import run


def main() -> int:
    """The exit status: 0 after a stop that was asked for, 1 (and one line) where it could not start."""
    parser = argparse.ArgumentParser(prog="python -m services.notes")
    commands = parser.add_subparsers(dest="command", metavar="command")
    believing = commands.add_parser("believe", help="take the notes that are missing from a workspace for deleted")
    believing.add_argument("directory", help="the workspace's directory name")
    arguments = parser.parse_args()
    settings = NotesSettings()
    if arguments.command == "believe":
        return asyncio.run(believe(settings, arguments.directory))
    try:
        run(NAME, settings, lambda stop: serve(settings, stop))
    except VaultsError as error:
        sys.stderr.write(f"notes: {error}\n")
        return 1
    return 0


async def believe(settings: NotesSettings, directory: str) -> int:
    """Tell the running service; the exit status is 1 where the workspace has no loss that is held to be an outage."""
    pool = await open_pool(settings.database_url, NAME, size=1)
    try:
        if await workspaces.believe(pool, directory):
            return 0
        sys.stderr.write(f"notes: no workspace {directory} is held to be unavailable\n")
        return 1
    finally:
        await pool.close()


if __name__ == "__main__":
    sys.exit(main())
