"""What the local stack is made of: stores, bundled models and the five services, each with the variables it needs."""

import asyncio
import http.client
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from local import processes
from local.home import Home
from local.nats_server import NatsServer
from local.ports import free_port
from local.postgres import Postgres
from local.settings import LocalSettings
from local.supervisor import Program
from shared.contracts.index import OWNER as INDEX

ROOT = Path(__file__).parents[1]
DEMO_MODEL = "marginalia-demo"
EMBEDDING_MODEL = "multilingual-e5-small+all-minilm-l6-v2"
_LOOPBACK = "127.0.0.1"
_EVERYWHERE = {"0.0.0.0": _LOOPBACK, "::": "[::1]"}  # noqa: S104 - asked for, not chosen


@dataclass(frozen=True, slots=True)
class Stack:
    """The programs to run, in the order of need, and the addresses they can be found at."""

    stores: tuple[Program, ...]
    models: tuple[Program, ...]
    services: tuple[Program, ...]
    endpoints: Mapping[str, str]
    postgres: Postgres | None = None

    @property
    def gateway_url(self) -> str:
        """Where a person's browser finds the gateway."""
        return self.endpoints["gateway"]


async def compose(settings: LocalSettings, home: Home, vaults: tuple[Path, ...], admin_password: str) -> Stack:
    """Decides what runs here and what is external, and writes what the embedded stores need.

    Raises `StartError` where a program is missing or a store's data cannot be used.
    """
    earlier = home.read_endpoints()
    stores: list[Program] = []
    models: list[Program] = []
    endpoints = {"gateway": _gateway_url(settings.host, settings.port)}

    nats = None
    if settings.nats_url is None:
        nats = NatsServer(free_port(_port_of(earlier.get("nats"))), home.secret("nats"))
        stores.append(nats.program(home))
        endpoints["nats"] = nats.url
    else:
        endpoints["nats"] = settings.nats_url.get_secret_value()

    postgres = None
    if settings.database_url is None:
        postgres = Postgres(home, free_port(_port_of(earlier.get("postgres"))), home.secret("postgres"))
        stores.append(await postgres.program())
        endpoints["postgres"] = postgres.url
    else:
        endpoints["postgres"] = settings.database_url.get_secret_value()

    if settings.embedding_base_url is None:
        port = free_port(_port_of(earlier.get("embedder")))
        models.append(http_program("embedder", "local.embedder", port))
        endpoints["embedder"] = f"http://{_LOOPBACK}:{port}/v1"
    if settings.model_base_url is None:
        port = free_port(_port_of(earlier.get("model")))
        models.append(http_program("model", "local.demo_model", port))
        endpoints["model"] = f"http://{_LOOPBACK}:{port}/v1"

    def found(name: str) -> dict[str, str]:
        """How a program finds NATS and the database: the embedded ones know each service by a name of its own."""
        bus = nats.environment(home, name) if nats else {"NATS_URL": endpoints["nats"]}
        if name == INDEX:
            return bus
        return bus | (postgres.environment(name) if postgres else {"DATABASE_URL": endpoints["postgres"]})

    services = _services(settings, vaults, admin_password, endpoints, found)
    return Stack(tuple(stores), tuple(models), tuple(services), endpoints, postgres)


def base_environment(settings: LocalSettings, home: Home) -> dict[str, str]:
    """What every process of the stack is given; MARGINALIA_HOME also tells ours from others with the same id later."""
    return {
        **settings.inherited,
        "MARGINALIA_HOME": str(home.path),
        "PYTHONUNBUFFERED": "1",
        # One heap per thread is the default, and most of the memory of a process with a pool of threads.
        "MALLOC_ARENA_MAX": "2",
    }


async def end_predecessors(home: Home) -> None:
    """Ends what a supervisor that was killed may have left behind, so that no store is opened twice.

    The kernel ends its children (`local.launch`), but they may need a moment. PostgreSQL is left to
    `Postgres.clear_predecessor`: killing it would cost a recovery.
    """
    files = [path for path in (home.path / "run").glob("*.pid") if path.stem != "postgres"]
    pids = [int(text) for path in files if (text := path.read_text().strip()).isdigit()]
    await processes.end(lambda: list(processes.started_with(pids, "MARGINALIA_HOME", str(home.path))), signal.SIGKILL, grace_seconds=5)
    for path in files:
        path.unlink(missing_ok=True)


def answers_ok(url: str, within_seconds: float) -> tuple[bool, str]:
    """Whether a GET answers 200, and what it says. Blocks; for use in a thread."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=within_seconds)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        return answer.status == 200, answer.read(4096).decode("utf-8", errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return False, str(error)
    finally:
        connection.close()


def _services(
    settings: LocalSettings,
    vaults: tuple[Path, ...],
    admin_password: str,
    endpoints: Mapping[str, str],
    stores: Callable[[str], Mapping[str, str]],
) -> Iterable[Program]:
    # Secrets go only to the service that uses them.
    common = _present(
        {
            **settings.telemetry,
            "MARGINALIA_HOST": settings.host,
            "MARGINALIA_PORT": str(settings.port),
            "MARGINALIA_VAULTS": ":".join(map(str, vaults)),
            "MARGINALIA_ALLOWED_ORIGINS": settings.allowed_origins,
        }
    )
    own: dict[str, dict[str, str]] = {
        "notes": {},
        "retrieval": _embedding(settings, endpoints) | _qdrant(settings),
        "contexts": {},
        "agent": _model(settings, endpoints) | settings.provider_keys(),
        "gateway": {"MARGINALIA_ADMIN_PASSWORD": admin_password},
    }
    if settings.qdrant_url is None:
        yield Program(INDEX, (sys.executable, "-m", "local.index_engine"), {**common, **stores(INDEX)})
    for name, variables in own.items():
        yield Program(name, (sys.executable, "-m", f"services.{name}"), {**common, **stores(name), **variables})


def _model(settings: LocalSettings, endpoints: Mapping[str, str]) -> dict[str, str]:
    demo = settings.model_base_url is None
    return _present(
        {
            "MODEL_BASE_URL": endpoints["model"] if demo else settings.model_base_url,
            "MODEL_NAME": DEMO_MODEL if demo else settings.model_name,
            "MODEL_API_KEY": None if demo else _revealed(settings.model_api_key),
            "MODEL_TOOL_CALLING": "true" if demo else settings.model_tool_calling,
            "MARGINALIA_PROVIDERS": str(settings.providers.absolute()) if settings.providers else None,
        }
    )


def _qdrant(settings: LocalSettings) -> dict[str, str]:
    return _present({"QDRANT_URL": _revealed(settings.qdrant_url), "QDRANT_API_KEY": _revealed(settings.qdrant_api_key)})


def _embedding(settings: LocalSettings, endpoints: Mapping[str, str]) -> dict[str, str]:
    bundled = settings.embedding_base_url is None
    return _present(
        {
            "EMBEDDING_BASE_URL": endpoints["embedder"] if bundled else settings.embedding_base_url,
            "EMBEDDING_MODEL": EMBEDDING_MODEL if bundled else settings.embedding_model,
            "EMBEDDING_API_KEY": None if bundled else _revealed(settings.embedding_api_key),
        }
    )


def http_program(name: str, module: str, port: int) -> Program:
    """A server of ours that is told its port, on 127.0.0.1, and answers `/healthz`."""

    async def is_ready() -> bool:
        ready, _ = await asyncio.to_thread(answers_ok, f"http://{_LOOPBACK}:{port}/healthz", 1.0)
        return ready

    # Two threads a product would take both cores of a small machine from the chat.
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    return Program(name, (sys.executable, "-m", module, "--port", str(port)), environment, is_ready=is_ready)


def _gateway_url(host: str, port: int) -> str:
    host = _EVERYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def _port_of(url: str | None) -> int | None:
    try:
        return urlsplit(url).port if url else None
    except ValueError:
        return None


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _present(variables: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value}
