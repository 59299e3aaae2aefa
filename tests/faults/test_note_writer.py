"""No acknowledged change of a note is lost, and every file is wholly old or wholly new: after kill -9 at any moment and at any system
call, and after a power cut (pitfalls, matrix rows 3, 10, 11, 18).
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from local.stack import ROOT
from services.notes import durable_file
from services.notes.vault import Vault
from services.notes.vault_writer import VaultWriter
from shared.contracts import notes
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import AppendExchange, CreateNote, ReplaceNote
from shared.messaging.bus import Bus
from tests.faults.writing_child import body
from tests.integration.notes.conftest import Asker
from tests.integration.notes.test_telling import process
from tests.support.polling import eventually

logger = logging.getLogger(__name__)

CHILD = (sys.executable, "-m", "tests.faults.writing_child")
CALLS = 50


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def swept(directory: Path) -> dict[str, bytes]:
    """The files as they are once what the crash has left is cleared away."""
    vault = Vault(directory)
    VaultWriter(vault, None).sweep(vault.survey().temporary)
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


# --- at each system call ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["replace", "replace by a link", "create", "move", "trash"])
def test_a_kill_at_each_of_the_first_fifty_system_calls_of_a_change(tmp_path: Path, what: str) -> None:
    for number in range(1, CALLS + 1):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "a.md").write_bytes(body(1))
    done = subprocess.run(
        [*CHILD, "calls", tmp_path, what, "1", str(CALLS)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    calls = [int(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(calls) == CALLS
    assert calls.count(0) > 15, "nearly every system call of the change is reached"
    old = {"a.md": body(1)}
    new = {
        "replace": {"a.md": body(2)}, "replace by a link": {"a.md": body(2)}, "create": {**old, "sub/b.md": body(2)},
        "move": {"sub/b.md": body(1)}, "trash": {".trash/a.md": body(1)},
    }[what]  # fmt: skip
    seen = []
    for number, made in enumerate(calls, start=1):
        before = {path.name for path in (tmp_path / f"{number}").rglob("*.md")}
        assert before <= {"a.md", "b.md"}, "nothing unfinished looks like a note"
        found = swept(tmp_path / f"{number}")
        assert found in ([new] if made else [old, new]), (what, number)
        seen.append(found)
    assert old in seen
    assert new in seen


# --- at random moments of the service -----------------------------------------------------------------------------------------------


class Life:
    """Changes notes through the service and remembers what was acknowledged."""

    def __init__(self, asker: Asker, workspace: UUID) -> None:
        self.asker = asker
        self.workspace = workspace
        # By note: the acknowledged text, and the one that may have been written since.
        self.acknowledged: dict[str, str] = {}
        self.asked: dict[str, str] = {}
        self.message: UUID | None = None
        self.count = 0

    async def go_on(self) -> None:
        """Change after change, until the service is gone."""
        while True:
            self.count += 1
            path = f"{self.count % 5}.md"
            text = f"text {self.count}\n" + f"{self.count:09}\n" * 2000
            self.asked[path] = text
            await self._put(path, text)
            self.acknowledged[path] = text
            self.message = uuid4()
            await self._append(self.message)

    async def _put(self, path: str, text: str) -> None:
        if path in self.acknowledged:
            request = ReplaceNote(workspace=self.workspace, path=path, content_hash=sha(self.acknowledged[path]), content=text)
            await self.asker.ask(notes.NOTE_REPLACE, request)
        else:
            await self.asker.ask(notes.NOTE_CREATE, CreateNote(workspace=self.workspace, path=path, content=text))

    async def _append(self, message: UUID) -> None:
        request = AppendExchange(
            workspace=self.workspace, path="talks.md", message_id=message, conversation_title="T", question="Q", answer=str(message)
        )
        await self.asker.ask(notes.NOTE_APPEND, request)

    async def catch_up(self, vault: Path) -> None:
        """After a kill: every file is the acknowledged version or the one that was asked for; then ask for what has no answer."""
        for path in self.acknowledged.keys() | self.asked.keys():
            file = vault / path
            found = file.read_text() if file.exists() else None
            assert found in (self.acknowledged.get(path), self.asked.get(path)), path
            if found is not None:
                self.acknowledged[path] = found
        if self.message is not None:
            await self._append(self.message)
            assert (vault / "talks.md").read_text().count(f"\n{self.message}\n") == 1


@pytest.fixture
async def asker(nats_url: str) -> AsyncIterator[Asker]:
    bus = Bus("tests", nats_url)
    await bus.connect()
    yield Asker(bus)
    await bus.stop()


@pytest.mark.timeout(900)
async def test_kill_9_at_random_moments_of_writing_loses_no_acknowledged_change(
    tmp_path: Path, database_url: str, nats_url: str, asker: Asker, request: pytest.FixtureRequest
) -> None:
    """Bar: 200 kills (`--kills 200`)."""
    seed = random.randrange(2**32)
    logger.warning("seed %d", seed)
    moments = random.Random(seed)
    vault = tmp_path / "vault"
    vault.mkdir()
    life: Life | None = None
    for _ in range(int(request.config.getoption("--kills"))):
        async with process(str(vault), tmp_path / "home", database_url, nats_url) as service:
            workspace = await eventually(lambda: there(asker), 15)
            life = life or Life(asker, workspace)
            await life.catch_up(vault)
            living = asyncio.create_task(life.go_on())
            await asyncio.wait({living}, timeout=moments.uniform(0.01, 0.3))
            service.kill()
            await service.wait()
            with pytest.raises(ServiceError) as gone:
                await living
            assert gone.value.code in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED), gone.value
    assert life is not None
    assert life.count > 1
    async with process(str(vault), tmp_path / "home", database_url, nats_url):
        await asker.ready()
        await life.catch_up(vault)

        async def settled() -> bool:
            found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in vault.glob("*")}
            return found == await asker.hashes(life.workspace)  # nothing but notes, and the index has each

        await eventually(settled, 10)


async def there(asker: Asker) -> UUID | None:
    with contextlib.suppress(ServiceError, KeyError):
        return (await asker.workspace()).id
    return None


# --- a power cut --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 file system in an image, of which nothing reaches the image but what is made to."""
    image, mount = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(48 * 1024 * 1024)
    if os.geteuid() != 0 or shutil.which("losetup") is None or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root, losetup and mkfs.ext4")
    run("mkfs.ext4", "-q", image)
    try:
        device = run("losetup", "-f", "--show", "--direct-io=on", image).strip()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device: {error.stderr}")
    mount.mkdir()
    try:
        run("mount", "-o", "commit=3600", device, mount)
        try:
            yield mount
        finally:
            run("umount", "-l", mount)
    finally:
        run("losetup", "-d", device)


def run(*command: object) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.timeout(900)
def test_after_a_power_cut_every_acknowledged_change_is_there(disk: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Bar: 200 cuts (`--power-cuts 200`)."""
    seed = random.randrange(2**32)
    logger.warning("seed %d", seed)
    moments = random.Random(seed)
    vault = disk / "vault"
    vault.mkdir()
    (vault / "a.md").write_bytes(body(1))
    os.sync()
    for _ in range(int(request.config.getoption("--power-cuts"))):
        acknowledged = cut_while_writing(vault, tmp_path, moments.uniform(0.02, 0.3))
        shutil.rmtree(vault)
        vault.mkdir()
        (vault / "a.md").write_bytes(body(1))
        os.sync()
        check_after_cut(tmp_path, acknowledged)


def cut_while_writing(vault: Path, tmp_path: Path, seconds: float) -> list[str]:
    """What was acknowledged before the moment of which `cut.img` is the disk."""
    child = subprocess.Popen([*CHILD, "chain", vault], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        lines = [child.stdout.readline()]  # it has begun
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
        child.send_signal(signal.SIGSTOP)  # its last acknowledgement comes before the copy
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        shutil.copyfile(tmp_path / "disk.img", tmp_path / "cut.img")
    finally:
        child.kill()
    lines += child.stdout.readlines()
    child.wait(10)
    child.stdout.close()
    return [line.strip() for line in lines if line.endswith("\n")]


def check_after_cut(tmp_path: Path, acknowledged: list[str]) -> None:
    mount = tmp_path / "after"
    mount.mkdir(exist_ok=True)
    run("mount", "-o", "loop", tmp_path / "cut.img", mount)
    try:
        found = swept(mount / "vault")
    finally:
        run("umount", mount)
    states: dict[int, str] = {}
    version = 1
    for line in acknowledged:
        what, number = line.split()
        if what == "replaced":
            version = int(number)
        else:
            states[int(number)] = what
    assert found.pop("a.md") in (body(version), body(version + 1)), f"{len(acknowledged)} changes"
    for number, state in states.items():
        path = f"d{number % 7}/{number}.md"
        places = [place for place in (path, f".trash/{path}") if place in found]
        assert places, f"{path} is lost"
        assert state == "created" or places == [f".trash/{path}"]
    for path, data in found.items():
        assert data == body(int(Path(path).stem)), path
    assert not any(durable_file.is_temporary(Path(path).name) for path in found)
