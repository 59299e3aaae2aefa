"""The embedded Qdrant engine as a process of its own: `python -m local.index_engine`. Serves `shared/contracts/index.py` over NATS.

    qdrant/CURRENT        the name of the generation that is read and written
    qdrant/gen-000N       a shard
    qdrant/gen-000N.build one that is being made; worthless after a crash
    qdrant/gen-000N.damaged   one that could not be loaded, the latest, kept for whoever wonders
    qdrant/starts         how often the present generation was opened without having lived since

Every write is in the engine's log on disk before it is answered. Its segments are flushed, which holds up searches for as long as the disk
takes, when nobody asks for anything or the log has grown. As many vectors as can be searched one by one in a few milliseconds are left
alone; beyond that a copy of the generation is optimised in a child process that runs while nothing else does (the engine would hold this
process's interpreter lock for minutes), what was written meanwhile is carried over, and `CURRENT` is switched. A shard that cannot be
loaded is moved aside and an empty one made: retrieval notices and fills it from its tables.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import UUID

from opentelemetry.trace import Span

from local.index_shard import LOG, POINTS_PER_CALL, EngineError, Shard
from shared import service
from shared.contracts import index
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.index import Delete, Search, SearchReply, SetDense, Stats, Upsert
from shared.contracts.subject import Empty
from shared.messaging.bus import Route
from shared.messaging.scope import Scope
from shared.settings import ServiceSettings, read
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

# Searched one by one in some 5 ms (384 dimensions): the most while more are being written.
UNINDEXED_MAX = 5_000
# When nothing has been written for so long, no more than 1 ms is worth leaving.
SETTLED_SECONDS = 10.0
UNINDEXED_SETTLED_MAX = 2_000
CHECK_SECONDS = 5.0
# A log of so many writes is read again in a few seconds after a crash.
LOGGED_MAX = 20_000
# Nobody has searched or written for so long: as good a time as any to flush.
QUIET_SECONDS = 3.0
# A generation that was opened this often, and never lived this long, is damaged in a way that kills (a truncated file does).
STARTS_MAX = 5
PROVEN_SECONDS = 10.0
# The engine prepares the log's next file under a passing name, and gives it its own at any time.
_UNNAMED = shutil.ignore_patterns("tmp-*")


class Generations:
    """The folders; synchronous. One process at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.number = 0
        self._highest = 0

    def open(self) -> Shard:
        """The present shard, or a new one where there is none or it is damaged. Clears away what a crash has left."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        current = self._read_current()
        for entry in list(self.root.iterdir()):
            if entry.name.startswith("gen-") and entry.name != current and not entry.name.endswith(".damaged"):
                shutil.rmtree(entry)
        if current is None:
            return self.begin()
        self.number = self._highest = _number(current)
        path = self.root / current
        try:
            if self._count_start() > STARTS_MAX:
                raise EngineError("the process died again and again with it open")
            return Shard.load(path)
        except EngineError as error:
            logger.error("The index %s cannot be used (%s); beginning with an empty one", current, error)  # noqa: TRY400 - text says all
            for earlier in self.root.glob("*.damaged"):
                shutil.rmtree(earlier)
            path.rename(path.with_suffix(".damaged"))
            return self.begin()

    def begin(self) -> Shard:
        """A new, empty generation, made the present one."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        build, number = self.new_build()
        Shard.create(build).close()
        path = self.publish_folder(build, number)
        shard = Shard.load(path)
        self.switch(number)
        return shard

    def new_build(self) -> tuple[Path, int]:
        """Where the next generation is to be made, and its number; no number is used twice."""
        self._highest += 1
        return self.root / f"{_name(self._highest)}.build", self._highest

    @property
    def path(self) -> Path:
        """The present generation's folder."""
        return self.root / _name(self.number)

    def publish_folder(self, build: Path, number: int) -> Path:
        """Gives a finished, closed build its name."""
        path = self.root / _name(number)
        build.rename(path)
        _sync(self.root)
        return path

    def switch(self, number: int) -> None:
        """Makes a generation the present one; atomic."""
        draft = self.root / "CURRENT.new"
        draft.write_text(_name(number) + "\n", "utf-8")
        _sync(draft)
        draft.replace(self.root / "CURRENT")
        _sync(self.root)
        self.number = number
        self.proven()

    def unindexed(self) -> int | None:
        """What was noted of the present generation; None where nothing was."""
        try:
            name, count = (self.root / "unindexed").read_text("utf-8").split()
            return int(count) if name == _name(self.number) else None
        except (FileNotFoundError, ValueError):
            return None

    def note_unindexed(self, count: int) -> None:
        """Note how many vectors of the present generation are searched one by one; about that many, should the process be killed."""
        draft = self.root / "unindexed.new"
        draft.write_text(f"{_name(self.number)} {count}\n", "utf-8")
        draft.replace(self.root / "unindexed")

    def proven(self) -> None:
        """The present generation has lived: forget the starts."""
        (self.root / "starts").unlink(missing_ok=True)

    def _count_start(self) -> int:
        counter = self.root / "starts"
        try:
            starts = int(counter.read_text("utf-8")) + 1
        except (FileNotFoundError, ValueError):
            starts = 1
        counter.write_text(str(starts), "utf-8")
        return starts

    def _read_current(self) -> str | None:
        try:
            name = (self.root / "CURRENT").read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        return name if _number(name) and (self.root / name).is_dir() else None


class Engine:
    """The present shard, for many askers: one thread makes every call to it, writes take turns and are durable when answered."""

    def __init__(self, root: Path, *, unindexed_max: int = UNINDEXED_MAX, settled_max: int = UNINDEXED_SETTLED_MAX) -> None:
        self._generations = Generations(root)
        self._unindexed_max = unindexed_max
        self._settled_max = settled_max
        self._thread = ThreadPoolExecutor(1, "engine")
        self._writing = asyncio.Lock()
        self._touched: set[UUID] | None = None  # while a build runs: what was written since its copy was taken
        self._rebuilt: asyncio.Task[None] | None = None
        self._writes = 0
        self._logged = 0  # writes since the last flush
        self._busy_at = self._written_at = 0.0
        self._looked_at = -1  # the writes that there were when the index was last looked at in rest
        # Dense vectors that no index has. The engine's own count takes points that got their vector late for indexed ones.
        self._unindexed = 0
        self._carried = 0  # those of a build, written since its copy was taken
        self._shard: Shard

    async def open(self) -> None:
        """Load what there is."""
        self._shard = await self._call(self._generations.open)
        noted = self._generations.unindexed()
        self._unindexed = noted if noted is not None else await self._call(self._shard.dense_points)

    async def close(self) -> None:
        """Give everything up; a build that runs is worthless then."""
        async with self._writing:
            self._generations.note_unindexed(self._unindexed)
            await self._call(self._shard.close)
        self._thread.shutdown()

    async def upsert(self, request: Upsert, _: Scope) -> Empty:
        """Adds or replaces points."""
        with _told("upsert"):
            async with self._writing:
                for points in _slices(request.points):
                    await self._write([point.id for point in points], lambda shard, points=points: shard.upsert(points))  # type: ignore[misc]
                await self._sync()
        return Empty()

    async def set_dense(self, request: SetDense, _: Scope) -> Empty:
        """Gives existing points their dense vectors."""
        with _told("set_dense"):
            async with self._writing:
                for vectors in _slices(request.vectors):
                    await self._write([vector.id for vector in vectors], lambda shard, vectors=vectors: shard.set_dense(vectors))  # type: ignore[misc]
                await self._sync()
        return Empty()

    async def forget_dense(self, _: Empty, __: Scope) -> Empty:
        """Removes all dense vectors, those of a build that runs too: it is given up."""
        async with self._writing:
            await self._give_up_rebuild()
            await self._call(self._shard.forget_dense)
            self._unindexed = 0
        return Empty()

    async def delete(self, request: Delete, _: Scope) -> Empty:
        """Removes points."""
        with _told("delete"):
            async with self._writing:
                for ids in _slices(request.ids):
                    await self._write(ids, lambda shard, ids=ids: shard.delete(ids))  # type: ignore[misc]
                await self._sync()
        return Empty()

    async def clear(self, _: Empty, __: Scope) -> Empty:
        """Removes all points, and forgets the dense vectors' dimension."""
        await self._begin_anew()
        return Empty()

    async def search(self, request: Search, _: Scope) -> SearchReply:
        """One or two legs."""
        if request.limit < 1 or (request.sparse is None and request.dense is None):
            raise ServiceError(ErrorCode.INVALID, "A search needs at least one vector and a limit of at least 1.")
        self._busy_at = time.monotonic()
        with _told("search"):
            return await self._call(lambda: self._shard.search(request))

    async def stats(self, _: Empty, __: Scope) -> Stats:
        """How many points, and which generation."""
        return Stats(points=await self._call(self._shard.points), generation=self._generations.number)

    async def maintain(self) -> None:
        """Optimises when enough has gathered, and begins anew where somebody has removed the folder; runs for ever."""
        await asyncio.sleep(PROVEN_SECONDS)
        self._generations.proven()
        while True:
            if not await asyncio.to_thread(self._generations.path.is_dir):
                # What is written there would be gone with this process.
                logger.warning("The folder of the index has gone; beginning with an empty one")
                await self._begin_anew()
            if self._logged > LOGGED_MAX or (self._logged and time.monotonic() - self._busy_at > QUIET_SECONDS):
                async with self._writing:
                    await self._flush()
            if self._wants_rebuild():
                await self._rebuild_once()
            await asyncio.sleep(CHECK_SECONDS)

    def _wants_rebuild(self) -> bool:
        """Whether too many vectors are searched one by one: many while writes go on, few once they have ended."""
        if self._looked_at == self._writes:
            return False
        if time.monotonic() - self._written_at < SETTLED_SECONDS:
            return self._unindexed > self._unindexed_max
        self._looked_at = self._writes
        return self._unindexed > self._settled_max

    async def rebuild(self) -> None:
        """Replace the present generation by an optimised one. Searches go on; writes wait while the copy is taken.

        Raises:
            EngineError: it could not be made; the present one stays.
        """
        build, number = self._generations.new_build()
        try:
            async with self._writing:
                await self._flush()
                # Nothing writes now and all is on disk, so that the folder may be copied while it is open and searched.
                await asyncio.to_thread(shutil.copytree, self._generations.path, build, ignore=_UNNAMED)
                self._touched = set()
                self._carried = 0
            await _optimize(build)
            await asyncio.to_thread(_sync_tree, build)
            path = await asyncio.to_thread(self._generations.publish_folder, build, number)
            fresh = await self._call(lambda: Shard.load(path))
            try:
                await self._catch_up(fresh, number)
            except BaseException:
                await self._call(fresh.close)
                raise
        finally:
            self._touched = None
            await asyncio.to_thread(shutil.rmtree, build, True)

    async def _catch_up(self, fresh: Shard, number: int) -> None:
        assert self._touched is not None
        while len(self._touched) > POINTS_PER_CALL:
            await self._carry_over(fresh)
        async with self._writing:
            while self._touched:
                await self._carry_over(fresh)
            await self._call(fresh.flush)

            def adopt() -> Shard:
                self._generations.switch(number)
                return fresh

            await self._switch(adopt)
            self._unindexed = self._carried
            self._generations.note_unindexed(self._unindexed)

    async def _begin_anew(self) -> None:
        async with self._writing:
            await self._give_up_rebuild()
            await self._switch(self._generations.begin)
            self._unindexed = 0

    async def _rebuild_once(self) -> None:
        self._rebuilt = asyncio.create_task(self.rebuild(), name="rebuild")
        await asyncio.wait({self._rebuilt})
        done, self._rebuilt = self._rebuilt, None
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("The index could not be optimised; it is searched as it is", exc_info=error)

    async def _give_up_rebuild(self) -> None:
        if self._rebuilt is not None:
            self._rebuilt.cancel()
            await asyncio.wait({self._rebuilt})

    async def _carry_over(self, fresh: Shard) -> None:
        assert self._touched is not None
        ids = [self._touched.pop() for _ in range(min(POINTS_PER_CALL, len(self._touched)))]
        self._carried += await self._call(lambda: self._shard.copy_points(ids, fresh))

    async def _write(self, ids: Sequence[UUID], write: Callable[[Shard], int]) -> None:
        """`write` returns how many dense vectors it wrote."""
        if self._touched is not None:
            self._touched.update(ids)
        self._busy_at = self._written_at = time.monotonic()
        self._writes += 1
        self._logged += len(ids)
        self._unindexed += await self._call(lambda: write(self._shard))

    async def _sync(self) -> None:
        """What was written is in the log on disk. The engine's own flush would hold up every search for as long as the disk takes."""
        await asyncio.to_thread(_sync_tree, self._generations.path / LOG)

    async def _flush(self) -> None:
        self._logged = 0
        await self._call(self._shard.flush)
        self._generations.note_unindexed(self._unindexed)

    async def _switch(self, make: Callable[[], Shard]) -> None:
        old, path = self._shard, self._generations.path
        self._logged = 0
        self._shard = await self._call(make)
        # The one thread has answered every search that was asked of the old one before it closes it.
        try:
            await self._call(old.close)
        except ServiceError:
            logger.warning("The generation %s did not close in order", path.name)
        await asyncio.to_thread(shutil.rmtree, path, True)

    async def _call[T](self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except EngineError as error:
            logger.error("The engine refused: %s", error)  # noqa: TRY400 - the text is all there is
            raise ServiceError(ErrorCode.UNAVAILABLE, "The search engine could not do that; its log says why.") from error


def _told(operation: str) -> AbstractContextManager[Span]:
    """A span around the engine's work on a question, the wait for other work included."""
    return tracing.span(words.POINTS, {words.DB_SYSTEM: "qdrant", words.DB_OPERATION: operation}, operation=operation)


def routes(engine: Engine) -> list[Route]:  # type: ignore[type-arg]
    """What this process serves."""
    return [
        Route(index.UPSERT, engine.upsert),
        Route(index.SET_DENSE, engine.set_dense),
        Route(index.FORGET_DENSE, engine.forget_dense),
        Route(index.DELETE, engine.delete),
        Route(index.SEARCH, engine.search),
        Route(index.STATS, engine.stats),
        Route(index.CLEAR, engine.clear),
    ]


async def serve(settings: ServiceSettings, stop: asyncio.Event) -> None:
    """Runs until `stop`."""
    if settings.home is None:
        raise SystemExit("MARGINALIA_HOME is not set: the search engine needs a directory to keep its data in")
    engine = Engine(settings.home / "qdrant")
    await engine.open()
    try:
        async with service.joined(index.OWNER, settings) as bus, service.background(engine.maintain(), "maintenance"):
            await bus.serve(routes(engine))
            await stop.wait()
    finally:
        await engine.close()


async def _optimize(path: Path) -> None:
    launch = Path(__file__).with_name("launch.py")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(launch), "--idle", "--parent", str(os.getpid()), "--"),
        *(sys.executable, "-m", "local.index_optimizer", str(path)),
    )
    try:
        if await process.wait() != 0:
            raise EngineError(f"the optimiser ended with {process.returncode}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _slices[T](items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + POINTS_PER_CALL] for start in range(0, len(items), POINTS_PER_CALL))


def _name(number: int) -> str:
    return f"gen-{number:04}"


def _number(name: str) -> int:
    digits = name.removeprefix("gen-")
    return int(digits) if name.startswith("gen-") and digits.isdigit() else 0


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(path: Path) -> None:
    for folder, _, files in path.walk():
        for file in files:
            # The log's next file, which is empty, may just have got its name.
            with contextlib.suppress(FileNotFoundError):
                _sync(folder / file)
        _sync(folder)


def main() -> None:
    """The entry point."""
    settings = read(ServiceSettings)
    service.run(index.OWNER, settings, lambda stop: serve(settings, stop))


if __name__ == "__main__":
    main()
