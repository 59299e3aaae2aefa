"""Becoming another program."""

import asyncio
import os
import sys
from pathlib import Path

from local import launch

REPORT = """
import os, pathlib
group = pathlib.Path("/proc/self/autogroup")
try:
    share = group.read_text().split()[-1]
except OSError:  # a kernel that does not share by sessions
    share = "19"
print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.getsid(0) == os.getpid(), share)
"""


async def reported(*options: str) -> list[str]:
    command = (sys.executable, "-I", "-S", str(Path(launch.__file__)), *options, "--parent", str(os.getpid()), "--")
    process = await asyncio.create_subprocess_exec(*command, sys.executable, "-c", REPORT, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode().split()


async def test_a_program_that_gives_way_does_so_to_other_sessions_too() -> None:
    assert await reported("--idle") == ["True", "True", "19"]


async def test_a_program_keeps_its_share_unless_it_is_to_give_way() -> None:
    assert (await reported())[:2] == ["False", "False"]
