"""Listing, reading and writing notes in a big vault and in a small one, with the real service: `python -m bench.notes [--notes 50000]`.

Prints medians for both sizes, and how long a start takes until a note is listed that was added to a vault otherwise unchanged.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from local.home import Home
from local.settings import LocalSettings
from local.stack import ROOT, base_environment, compose
from local.supervisor import Supervisor
from shared.contracts import notes
from shared.contracts.errors import ServiceError
from shared.contracts.notes import CreateNote, ListNotes, PatchNote, ReadNote, Workspace
from shared.contracts.subject import Empty
from shared.messaging.bus import Bus
from shared.messaging.client import Client
from shared.messaging.scope import Scope

SMALL = 500
TIMES = 200
PAGE = 100


@asynccontextmanager
async def running(vault: Path, directory: Path) -> AsyncIterator[Bus]:
    """The stores and the notes service; nothing else."""
    settings = LocalSettings(MARGINALIA_HOME=directory, MARGINALIA_VAULTS=str(vault))  # type: ignore[call-arg]
    home = Home.open(directory)
    supervisor = Supervisor(home, ROOT, base_environment(settings, home), print)
    try:
        stack = await compose(settings, home, settings.vaults, "unused-password")
        programs = {program.name: program for program in (*stack.stores, *stack.services)}
        for name in ("nats", "postgres"):
            supervisor.start(programs[name])
        await supervisor.ready(["nats", "postgres"], 60)
        assert stack.postgres is not None
        await stack.postgres.prepare()
        bus = Bus("bench", stack.endpoints["nats"])
        await bus.connect()
        supervisor.start(programs["notes"])
        try:
            yield bus
        finally:
            await bus.stop()
    finally:
        await supervisor.stop()
        home.close()


async def until_there(client: Client, count: int) -> tuple[Workspace, float]:
    """The workspace once it has so many notes, and the seconds until then."""
    began = time.perf_counter()
    while True:
        with contextlib.suppress(ServiceError):
            for workspace in (await client.ask(notes.WORKSPACE_LIST, Empty(), Scope.root(5))).items:
                if workspace.notes == count:
                    return workspace, time.perf_counter() - began
        await asyncio.sleep(0.02)


async def until_told(bus: Bus, count: int) -> None:
    """Until so many changes are in the stream: telling them is the first start's work, too."""
    while (await bus.nats.jetstream().stream_info(notes.STREAM)).state.messages < count:  # noqa: ASYNC110
        await asyncio.sleep(0.2)


async def median(work: Callable[[int], Awaitable[object]]) -> float:
    """Milliseconds of one of many, one after the other."""
    took = []
    for number in range(TIMES):
        began = time.perf_counter()
        await work(number)
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


async def measured(client: Client, workspace: UUID, count: int) -> dict[str, float]:
    """Medians by what was done."""
    step = max(1, count // TIMES)

    async def page(number: int) -> None:
        cursor = (
            await client.ask(notes.NOTE_LIST, ListNotes(workspace=workspace, limit=1, prefix=directory_of(number)), Scope.root(10))
        ).next_cursor
        await client.ask(notes.NOTE_LIST, ListNotes(workspace=workspace, limit=PAGE, cursor=cursor), Scope.root(10))

    async def read(number: int) -> None:
        await client.ask(notes.NOTE_READ, ReadNote(workspace=workspace, path=path_of(number * step)), Scope.root(10))

    async def patch(number: int) -> None:
        note = await client.ask(notes.NOTE_READ, ReadNote(workspace=workspace, path=path_of(number * step)), Scope.root(10))
        request = PatchNote(
            workspace=workspace, path=note.path, content_hash=note.content_hash, old_text="Some words", new_text=f"Some words, {number}"
        )
        await client.ask(notes.NOTE_PATCH, request, Scope.root(10))

    async def create(number: int) -> None:
        request = CreateNote(workspace=workspace, path=f"new/{number}.md", content=text_of(number))
        await client.ask(notes.NOTE_CREATE, request, Scope.root(10))

    works = {f"list {PAGE}": page, "read": read, "read and patch": patch, "create": create}
    return {what: await median(work) for what, work in works.items()}


def directory_of(number: int) -> str:
    """A hundred directories."""
    return f"d{number % 100:02}/"


def path_of(number: int) -> str:
    """Where a note lies."""
    return f"{directory_of(number)}{number}.md"


def text_of(number: int) -> str:
    """A small note."""
    return f"---\ntags: [t{number % 50}]\n---\n# Note {number}\n\nSome words.\n"


async def vault_of(count: int, directory: Path) -> tuple[dict[str, float], float, float]:
    """The medians of a vault of that size, and the seconds of its first start and of a second one."""
    vault = directory / "vault"
    for number in range(count):
        path = vault / path_of(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(number))
    os.sync()  # else the first fsync of ours would write them all
    async with running(vault, directory / "home") as bus:
        workspace, first = await until_there(bus.client, count)
        await until_told(bus, count)
        found = await measured(bus.client, workspace.id, count)
    (vault / "added.md").write_text("added while nobody looked")
    async with running(vault, directory / "home") as bus:
        _, again = await until_there(bus.client, count + TIMES + 1)
    return found, first, again


async def main(count: int) -> None:
    """Run it."""
    rows = []
    for size in (SMALL, count):
        with tempfile.TemporaryDirectory() as directory:
            rows.append(await vault_of(size, Path(directory)))
    (small, *_), (big, first, again) = rows
    print(f"{'ms, median of ' + str(TIMES):<28}{SMALL:>10}{count:>10}     ratio")
    for what in small:
        print(f"{what:<28}{small[what]:>10.2f}{big[what]:>10.2f}{big[what] / small[what]:>10.2f}")
    print(f"first start {first:.1f} s, start over the unchanged vault and one note more {again:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notes", type=int, default=5000)
    asyncio.run(main(parser.parse_args().notes))
