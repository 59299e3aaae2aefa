"""Bringing the index to what is in the files: look at stats, read what differs, commit; nothing is read twice for nothing."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from uuid import UUID

from services.notes import catalog, changes, losses, metadata
from services.notes.catalog import Known
from services.notes.changes import Before, Seen
from services.notes.content_words import content_words
from services.notes.durable_file import digest
from services.notes.losses import Loss
from services.notes.note_path import NotePath
from services.notes.vault import FileStat, NoSuchNote, NoteInaccessible, NoteTooLarge, NoteUnreadable, RawNote, Survey, Vault
from services.notes.vault_writer import VaultWriter
from services.notes.write_lock import WriteLocks
from shared.database.pool import Pool, connection

logger = logging.getLogger(__name__)

# A batch is read in one thread and committed in one transaction.
BATCH_NOTES = 400
BATCH_BYTES = 8 * 1024 * 1024
# Editors that replace a note by deleting it first have the new one there by then.
SETTLE_SECONDS = 0.15
# Deletions that are told apart by less than this are one loss.
RECENT_SECONDS = 10.0


class Held(Exception):
    """A loss is held to be an outage; the message says which."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scan did: how many changes, and which paths to look at again since they were being written."""

    changed: int
    unsettled: list[str]

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(self.changed + other.changed, [*self.unsettled, *other.unsettled])


def as_text(data: bytes) -> str | None:
    """A note's text, line endings and a byte order mark as they are; None where it is no text."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def describe(path: str, data: bytes) -> metadata.Metadata:
    """Title and tags of a note's bytes."""
    name = path.rpartition("/")[2]
    text = as_text(data)
    return metadata.from_name(name) if text is None else metadata.extract(text, name)


class Indexer:
    """Keeps one workspace's rows. One process at a time does (see `keeping`)."""

    def __init__(self, pool: Pool, locks: WriteLocks, workspace: UUID, vault: Vault, threads: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._locks = locks
        self._workspace = workspace
        self._vault = vault
        self._threads = threads
        self._recent: deque[tuple[float, int]] = deque()
        self._missing: tuple[frozenset[str], float] = (frozenset(), 0.0)

    async def scan(
        self,
        below: Collection[str] | None,
        *,
        same_directory: bool,
        believe: bool = False,
        touched: Callable[[], Collection[str]] = lambda: (),
    ) -> Outcome:
        """Look at these paths and what lies below them, or at everything. `believe`: whatever is missing was deleted. `touched`: where else
        something has come in the meantime, the other end of a move perhaps.

        Raises:
            VaultUnavailable: the vault is away.
            Held: too much is missing; nothing was committed.
        """
        if below is None and await catalog.forget_outdated(self._pool, self._workspace, metadata.EDITION):
            logger.info("All files of workspace %s are read anew", self._workspace)
        survey, known = await self._look(below)
        gone = _missing(survey, known)
        if gone and below is not None:
            await asyncio.sleep(SETTLE_SECONDS)
            below = {*below, *touched()}
            survey, known = await self._look(below)
            gone = _missing(survey, known)
        fresh = {path: stat for path, stat in survey.notes.items() if (row := known.get(path)) is None or row.stat != stat}
        arrivals = await self._read_arrivals(fresh, known, gone)
        total = len(known) if below is None else await self._count()
        deleted = gone - changes.pair_moves(_before(known, gone), arrivals.seen).keys()
        left = len(survey.notes) if below is None else total - len(deleted)
        why = self._judge(total, deleted, left, same_directory=same_directory, whole=below is None)
        if why and not believe:
            if below is not None:
                return await self.scan(None, same_directory=same_directory)
            raise Held(why)
        outcome = await self._commit_in_batches({p: s for p, s in fresh.items() if p not in arrivals.paths})
        if gone or arrivals.seen:
            outcome += await self._commit(arrivals, gone)
            self._recent.append((_now(), len(deleted)))
        if below is None and survey.temporary:
            await self._sweep(survey.temporary)
        return outcome

    async def _look(self, below: Collection[str] | None) -> tuple[Survey, dict[str, Known]]:
        survey = await self._in_thread(self._vault.survey, below)
        known = await catalog.known_files(self._pool, self._workspace, None if below is None else list(below))
        return survey, known

    async def _read_arrivals(self, fresh: dict[str, FileStat], known: dict[str, Known], gone: set[str]) -> "_Batch":
        """New notes that may be the missing ones under another path: of a size that one of those had."""
        sizes = {known[path].stat.size for path in gone}
        batch = _Batch({}, [], {path for path, stat in fresh.items() if path not in known and stat.size in sizes})
        for part in _batches({path: fresh[path] for path in batch.paths}):
            read = await self._in_thread(self._read, part)
            batch.read.update(read.read)
            batch.unsettled.extend(read.unsettled)
        return batch

    async def _commit_in_batches(self, fresh: dict[str, FileStat]) -> Outcome:
        outcome = Outcome(0, [])
        for part in _batches(fresh):
            outcome += await self._commit(await self._in_thread(self._read, part), ())
        return outcome

    async def _commit(self, batch: "_Batch", gone: Collection[str]) -> Outcome:
        """Commit what still is so. What a writer of ours has changed since it was seen would take the index back to before."""
        if not batch.read and not gone:
            return Outcome(0, batch.unsettled)
        async with self._locks.held(self._workspace) as connected:
            now = await self._in_thread(self._vault.survey, [*batch.read, *gone])
            seen = [note for note, stat in batch.read.values() if now.notes.get(note.path) == stat]
            still_gone = [path for path in gone if path not in now.notes and now.saw(path)]
            changed = len(await changes.commit(connected, self._workspace, seen, still_gone))
        overtaken = {*batch.read, *gone} - {*(note.path for note in seen), *still_gone}
        return Outcome(changed, [*{*batch.unsettled, *overtaken}])

    async def _sweep(self, temporary: list[str]) -> None:
        """Clear away what a crash has left: under the lock no write is going on, whose file it could be."""
        async with self._locks.held(self._workspace):
            await self._in_thread(VaultWriter(self._vault, None).sweep, temporary)

    def _read(self, paths: list[str]) -> "_Batch":
        batch = _Batch({}, [], set(paths))
        for path in paths:
            try:
                raw = self._vault.read(NotePath(path))
            except NoteTooLarge as error:
                batch.read[path] = too_large(path, error.stat), error.stat
                continue
            except (NoSuchNote, NoteUnreadable, NoteInaccessible) as error:
                # Gone or replaced since it was seen, or not readable at present: the next scan sees.
                logger.info("%s was not read: %s", path, error)
                continue
            batch.read[path] = seen_of(path, raw), raw.stat
            if not raw.settled:
                batch.unsettled.append(path)
        return batch

    def _judge(self, total: int, deleted: set[str], left: int, *, same_directory: bool, whole: bool) -> str | None:
        now = _now()
        while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        before = sum(count for _, count in self._recent)
        missing, since = self._missing
        if whole:
            if missing != deleted:
                since = now
            self._missing = (frozenset(deleted), since)
        if not deleted:
            return None
        seconds = now - since if whole else 0.0
        return losses.problem(Loss(total + before, len(deleted) + before, left, same_directory, seconds))

    async def _count(self) -> int:
        async with connection(self._pool) as connected:
            return int(await connected.fetchval("SELECT notes FROM workspaces WHERE id = $1", self._workspace))

    async def _in_thread[*Arguments, T](self, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


@dataclass(frozen=True, slots=True)
class _Batch:
    """`read`: what is to be committed, with the stat that the file had; `paths`: those that were to be read."""

    read: dict[str, tuple[Seen, FileStat]]
    unsettled: list[str]
    paths: set[str]

    @property
    def seen(self) -> list[Seen]:
        return [note for note, _ in self.read.values()]


def seen_of(path: str, raw: RawNote) -> Seen:
    """What the index is to know of a note that was read or written."""
    found = describe(path, raw.data)
    # What may have changed again unseen is stored with a stat that no file has, so that the next look reads it, also after a crash.
    stat = raw.stat if raw.settled else replace(raw.stat, ctime_ns=0)
    return Seen(path, stat, digest(raw.data), found.title, found.tags, content_words(as_text(raw.data) or ""))


def too_large(path: str, stat: FileStat) -> Seen:
    """What the index has of a file that is not read: its name, and a version of which only is told that it is another one. It is there,
    and a note again once it is smaller.
    """
    return Seen(
        path, stat, digest(f"{stat.inode} {stat.size} {stat.mtime_ns}".encode()), metadata.from_name(path.rpartition("/")[2]).title, []
    )


def _missing(survey: Survey, known: dict[str, Known]) -> set[str]:
    return {path for path in known if path not in survey.notes and survey.saw(path)}


def _before(known: dict[str, Known], paths: Collection[str]) -> dict[str, Before]:
    return {path: Before(known[path].content_hash, known[path].stat.inode) for path in paths}


def _batches(fresh: dict[str, FileStat]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path, stat in fresh.items():
        batch.append(path)
        size += stat.size
        if len(batch) >= BATCH_NOTES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _now() -> float:
    return asyncio.get_running_loop().time()
