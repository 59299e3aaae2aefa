import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from local import processes
from local.errors import StartError
from local.home import Home
from local.supervisor import Program, Supervisor

type Until = Callable[..., Awaitable[None]]


def python(name: str, code: str, **options: object) -> Program:
    return Program(name, (sys.executable, "-I", "-S", "-c", code), **options)


def pid(home: Home, name: str) -> int | None:
    try:
        return int(home.pid_file(name).read_text())
    except FileNotFoundError:
        return None


async def test_a_program_that_dies_is_started_again(home: Home, supervisor: Supervisor, reports: list[str], until: Until) -> None:
    supervisor.start(python("sleeper", "import time; time.sleep(60)"))
    await until(lambda: pid(home, "sleeper"))
    first = pid(home, "sleeper")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: pid(home, "sleeper") not in (None, first))
    assert reports == [f"sleeper was ended by SIGKILL; starting it again in 0.2 s (log: {home.path}/logs/sleeper.log)"]


async def test_stopping_asks_first_and_removes_the_process_id(home: Home, supervisor: Supervisor, reports: list[str], until: Until) -> None:
    code = (
        "import signal, sys, time; signal.signal(15, lambda *a: (print('bye', flush=True), sys.exit()));"
        "print('up', flush=True); time.sleep(60)"
    )
    supervisor.start(python("polite", code))
    await until(lambda: home.log_tail("polite", 1) == ["up"])
    await supervisor.stop(grace_seconds=5)
    assert home.log_tail("polite", 2) == ["up", "bye"]
    assert pid(home, "polite") is None
    assert reports == []


async def test_a_program_that_will_not_end_is_killed_with_what_it_started(
    home: Home, supervisor: Supervisor, reports: list[str], until: Until, tmp_path: Path
) -> None:
    code = (
        "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN);"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], cwd={str(tmp_path)!r});"
        "print('up', flush=True); time.sleep(60)"
    )
    supervisor.start(python("stubborn", code))
    await until(lambda: home.log_tail("stubborn", 1) == ["up"])
    await until(lambda: list(processes.working_in(tmp_path)))
    await supervisor.stop(grace_seconds=0.2)
    assert "was killed" in reports[0]
    await until(lambda: not list(processes.working_in(tmp_path)))


async def test_a_program_that_fails_at_once_shows_the_end_of_its_log(supervisor: Supervisor, reports: list[str], until: Until) -> None:
    supervisor.start(python("broken", "import sys; sys.exit('no such table')", is_ready=never))
    await until(lambda: "    no such table" in reports, 20)
    assert [line for line in reports if "starting it again" in line][-1].count("3.2 s") == 1


async def test_what_is_not_ready_in_time_is_named(home: Home, supervisor: Supervisor) -> None:
    supervisor.start(python("slow", "import time; time.sleep(60)", is_ready=never))
    supervisor.start(python("quick", "import time; time.sleep(60)"))
    with pytest.raises(StartError, match=r"^slow did not get ready within 0 s"):
        await supervisor.ready(["slow", "quick"], within_seconds=0.3)


async def test_a_missing_program_is_said_and_tried_again(home: Home, supervisor: Supervisor, reports: list[str], until: Until) -> None:
    supervisor.start(Program("absent", ("/nonexistent/program",)))
    await until(lambda: reports)
    assert home.log_tail("absent", 1) == ["cannot run /nonexistent/program: No such file or directory"]


async def test_a_killed_supervisor_leaves_no_orphan(tmp_path: Path, until: Until) -> None:
    program = tmp_path / "program"
    program.mkdir()
    code = f"""
import asyncio, sys
from pathlib import Path
from local.home import Home
from local.supervisor import Program, Supervisor
async def main():
    supervisor = Supervisor(Home.open(Path({str(tmp_path / "home")!r})), Path({str(program)!r}), {{}}, print)
    supervisor.start(Program("child", (sys.executable, "-S", "-c", "import time; time.sleep(60)")))
    await asyncio.sleep(60)
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", code])  # noqa: ASYNC220 - a supervisor of its own
    try:
        await until(lambda: list(processes.working_in(program)))
    finally:
        process.kill()
        process.wait()
    await until(lambda: not list(processes.working_in(program)), 5)


async def never() -> bool:
    await asyncio.sleep(0)
    return False
