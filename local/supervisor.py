"""Keeps programs running: starts them, says when they are ready, starts again what dies, and ends them in order."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from local import launch
from local.errors import StartError
from local.home import Home

type Report = Callable[[str], None]

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
_STEADY_SECONDS = 10.0
_FAILURES_BEFORE_LOG = 5
_LOG_LINES = 12
_POLL_SECONDS = 0.03


class User(NamedTuple):
    """Whom a program runs as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Program:
    """A program to keep running.

    `is_ready` says whether it serves; without it a program counts as ready once it runs. `prepare` runs before each
    start. `stop_signal` asks it to end; `death_signal` is what the kernel sends it when the supervisor dies.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_ready: Callable[[], Awaitable[bool]] | None = None
    prepare: Callable[[], Awaitable[None]] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    user: User | None = None


class Supervisor:
    """Runs programs in `directory`, each in a session of its own, with its process id and log in the home.

    `environment` is what every program gets; a program's own variables come on top. `report` takes one line for a
    person.
    """

    def __init__(self, home: Home, directory: Path, environment: Mapping[str, str], report: Report) -> None:
        self._home = home
        self._directory = directory
        self._environment = environment
        self._report = report
        self._runs: dict[str, _Run] = {}

    def start(self, program: Program) -> None:
        """Starts a program, and from then on starts it again whenever it ends."""
        self._runs[program.name] = _Run(program, self._home, self._directory, self._environment, self._report)

    async def ready(self, names: Iterable[str], within_seconds: float) -> None:
        """Returns once all of these are ready; raises `StartError` naming those that are not in time."""
        waiting = set(names)

        async def wait_for(name: str) -> None:
            while not await self._runs[name].is_ready():  # noqa: ASYNC110 - readiness can only be asked for
                await asyncio.sleep(_POLL_SECONDS)
            waiting.discard(name)

        try:
            async with asyncio.timeout(within_seconds), asyncio.TaskGroup() as group:
                for name in list(waiting):
                    group.create_task(wait_for(name))
        except TimeoutError as error:
            raise StartError(
                f"{', '.join(sorted(waiting))} did not get ready within {within_seconds:.0f} s; see {self._home.path / 'logs'}"
            ) from error

    async def stop(self, names: Iterable[str] | None = None, grace_seconds: float = 10.0) -> None:
        """Ends these programs, or all: asks them, and kills what is still there after the grace."""
        chosen = [self._runs.pop(name) for name in (list(self._runs) if names is None else names) if name in self._runs]
        await asyncio.gather(*(run.stop(grace_seconds) for run in chosen))


class _Run:
    """One program that is kept running."""

    def __init__(self, program: Program, home: Home, directory: Path, environment: Mapping[str, str], report: Report) -> None:
        self._program = program
        self._home = home
        self._directory = directory
        self._environment = {**environment, **program.environment}
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._failures = 0
        self._was_ready = False
        self._task = asyncio.create_task(self._keep_running(), name=f"keep {program.name} running")

    async def is_ready(self) -> bool:
        if self._task.done():
            self._task.result()
        if self._process is None:
            return False
        ready = self._program.is_ready is None or await self._program.is_ready()
        self._was_ready = self._was_ready or ready
        return ready

    async def stop(self, grace_seconds: float) -> None:
        self._stopping.set()
        self._signal(self._program.stop_signal)
        try:
            done, _ = await asyncio.wait({self._task}, timeout=grace_seconds)
            if not done:
                self._report(f"{self._program.name} did not end within {grace_seconds:.0f} s and was killed")
        finally:
            self._signal(signal.SIGKILL)  # where it still runs, also when nobody waits any more
        await asyncio.wait({self._task})

    async def _keep_running(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                if self._program.prepare is not None:
                    await self._program.prepare()
                end = _described(await self._run_once())
            except OSError as error:  # no memory, no disk: both pass
                end = f"could not be started: {error}"
            if self._stopping.is_set():
                return
            if time.monotonic() - started >= _STEADY_SECONDS:
                pause, self._failures = _FIRST_PAUSE_SECONDS, 0
            self._failures += 1
            self._report_end(end, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _run_once(self) -> int:
        name = self._program.name
        command = launched(self._program.command, self._program.user, self._program.death_signal)
        log = self._home.open_log(name)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
        finally:
            os.close(log)
        self._process = process
        self._write_pid(process.pid)
        if self._stopping.is_set():  # asked to end while it was being started
            self._signal(self._program.stop_signal)
        try:
            return await process.wait()
        finally:
            self._process = None
            self._home.remove_pid(name)
            # What it started itself and left behind.
            _signal_group(process.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if number == signal.SIGKILL:
            _signal_group(self._process.pid, number)
        else:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _write_pid(self, pid: int) -> None:
        try:
            self._home.write_pid(self._program.name, pid)
        except OSError as error:  # a full disk is no reason to end the program
            self._report(f"the process id of {self._program.name} could not be written: {error.strerror}")

    def _report_end(self, end: str, pause: float) -> None:
        name = self._program.name
        self._report(f"{name} {end}; starting it again in {pause:.1f} s (log: {self._home.log_file(name)})")
        if self._failures == _FAILURES_BEFORE_LOG and not self._was_ready:
            self._report(f"{name} has failed {self._failures} times in a row; the end of its log:")
            for line in self._home.log_tail(name, _LOG_LINES):
                self._report(f"    {line}")


def launched(command: Sequence[str], user: User | None = None, death_signal: signal.Signals = signal.SIGKILL) -> tuple[str, ...]:
    """The command line that runs `command` so that it ends with this process (see `local.launch`)."""
    as_user = () if user is None else ("--user", f"{user.uid}:{user.gid}")
    options = (*as_user, "--death-signal", str(int(death_signal)), "--parent", str(os.getpid()))
    return (sys.executable, "-I", "-S", str(Path(launch.__file__)), *options, "--", *command)


def _described(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)
