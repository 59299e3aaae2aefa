"""`python -m services.notes`."""

import sys

from services.notes.app import NAME, serve
from services.notes.settings import NotesSettings
from services.notes.workspaces import VaultsError
from shared.service import run


def main() -> int:
    """The exit status: 0 after a stop that was asked for, 1 (and one line) where it could not start."""
    settings = NotesSettings()
    try:
        run(NAME, settings, lambda stop: serve(settings, stop))
    except VaultsError as error:
        sys.stderr.write(f"notes: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
