"""`python -m local`: the whole of Marginalia on this machine, in the foreground until Ctrl-C or SIGTERM."""

import asyncio
import signal
import sys
from collections.abc import Coroutine

from pydantic import ValidationError

from local.errors import StartError
from local.home import Home
from local.ports import require_free
from local.settings import LocalSettings
from local.stack import ROOT, Stack, answers_ok, base_environment, compose, end_predecessors
from local.supervisor import Supervisor
from local.vaults import require_vaults, sample_if_empty
from shared.secret_files import SecretFileError

_READY_WITHIN_SECONDS = 60.0
_POLL_SECONDS = 0.05


def main() -> int:
    """The exit status: 0 after a stop that was asked for, 1 (and one line on stderr) where it could not start."""
    try:
        settings = LocalSettings()
    except ValidationError as error:
        for problem in error.errors(include_input=False):
            say(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
        return 1
    except SecretFileError as error:
        say(str(error))
        return 1
    try:
        asyncio.run(run(settings))
    except StartError as error:
        say(str(error))
        return 1
    return 0


async def run(settings: LocalSettings) -> None:
    """Starts everything, says how to log in, waits for the signal to end, and ends everything."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    vaults = require_vaults(settings.vaults)
    home = Home.open(settings.home)
    try:
        require_free(settings.host, settings.port)
        await end_predecessors(home)
        password, is_new = _admin_password(settings, home)
        stack = await compose(settings, home, vaults or sample_if_empty(home.path / "vaults"), password)
        home.write_endpoints(stack.endpoints)
        supervisor = Supervisor(home, ROOT, base_environment(settings, home), say)
        try:
            await _until(stop, _start(supervisor, stack, _log_in(settings, home, password, is_new)))
            await stop.wait()
        finally:
            await _end(supervisor, stack)
    finally:
        home.close()


async def _start(supervisor: Supervisor, stack: Stack, log_in: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _READY_WITHIN_SECONDS
    for program in (*stack.stores, *stack.models):
        supervisor.start(program)
    await supervisor.ready([program.name for program in stack.stores], deadline - loop.time())
    if stack.postgres is not None:
        await stack.postgres.prepare()
    for program in stack.services:
        supervisor.start(program)
    await supervisor.ready([program.name for program in stack.models], deadline - loop.time())
    await _gateway_ready(stack.gateway_url, deadline)
    print(f"Marginalia is ready: {stack.gateway_url}\n{log_in}", flush=True)
    if "model" in stack.endpoints:
        print(
            "Answers come from the bundled demo model, which only quotes your notes;"
            " set MODEL_BASE_URL, MODEL_API_KEY and MODEL_NAME for a real one.",
            flush=True,
        )


async def _gateway_ready(url: str, deadline: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready, answer = await asyncio.to_thread(answers_ok, f"{url}/readyz", 5.0)
        if ready:
            return
        if loop.time() >= deadline:
            raise StartError(f"not ready within {_READY_WITHIN_SECONDS:.0f} s: {' '.join(answer.split())[:300]}")
        await asyncio.sleep(_POLL_SECONDS)


async def _end(supervisor: Supervisor, stack: Stack) -> None:
    """Services first: they still need their stores to end well."""
    await supervisor.stop([program.name for program in (*stack.services, *stack.models)])
    await supervisor.stop()


async def _until(stop: asyncio.Event, work: Coroutine[object, object, None]) -> None:
    """Does the work, or gives it up when asked to stop meanwhile."""
    working = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if working.done():
        working.result()
        return
    working.cancel()
    await asyncio.wait((working,))


def _admin_password(settings: LocalSettings, home: Home) -> tuple[str, bool]:
    if settings.admin_password is not None:
        return settings.admin_password.get_secret_value(), False
    return home.admin_password()


def _log_in(settings: LocalSettings, home: Home, password: str, is_new: bool) -> str:
    if settings.admin_password is not None:
        return "Log in as admin with the password from MARGINALIA_ADMIN_PASSWORD."
    if is_new:
        return f"Log in as admin with the password {password} (kept in {home.admin_password_file})."
    return f"Log in as admin with the password in {home.admin_password_file}."


def say(line: str) -> None:
    """A line on stderr, where the services' ends and the reasons not to start go."""
    print(f"marginalia: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
