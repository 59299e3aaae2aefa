"""TLS to every store and at the gateway, with certificates made here: whoever is not certified by the known authority is told nothing."""

import asyncio
import contextlib
import gc
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx
import nats
import pytest
import trustme
import uvicorn
from pydantic import SecretStr, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from local.home import Home
from local.nats_server import find_binary
from local.ports import free_port
from local.stack import ROOT
from local.supervisor import Program, Supervisor
from services.gateway.app import serve as serve_gateway
from services.gateway.settings import GatewaySettings
from services.retrieval import server_index
from services.retrieval.settings import RetrievalSettings
from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import open_pool
from shared.messaging import server_configuration
from shared.messaging.bus import Bus
from shared.settings import DatabaseSettings, ServiceSettings
from tests.support.chat_client import PASSWORD, running
from tests.support.polling import eventually

# What a PostgreSQL client says first where it wants TLS.
SSL_REQUEST = bytes.fromhex("0000000804d2162f")


@dataclass(frozen=True, slots=True)
class Certificates:
    """`ca` has certified `certificate`, for this machine; `stranger` is another authority."""

    ca: Path
    stranger: Path
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    made = Certificates(*(folder / name for name in ("ca.pem", "stranger.pem", "certificate.pem", "key.pem")))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(made.ca)
    trustme.CA().cert_pem.write_to_path(made.stranger)
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(made.key)
    for blob in issued.cert_chain_pems:
        blob.write_to_path(made.certificate, append=True)
    return made


def tls(ca: Path) -> ssl.SSLContext:
    context = ServiceSettings(MARGINALIA_CA=ca).tls
    assert context is not None
    return context


@asynccontextmanager
async def nats_server(home: Home, certificates: Certificates) -> AsyncIterator[int]:
    """The port of one that was configured as the command does it."""
    port = free_port()
    text = server_configuration.configuration(
        server_configuration.passwords_in(home.secrets),
        str(home.path / "jetstream"),
        listen=f"127.0.0.1:{port}",
        tls=server_configuration.tls(str(certificates.certificate), str(certificates.key)),
    )
    file = home.path / server_configuration.FILE
    file.write_text(text)
    supervisor = Supervisor(home, ROOT, {}, print)
    supervisor.start(Program("nats", (str(find_binary()), "--config", str(file))))
    try:
        await eventually(lambda: _listens(port), 10)
        yield port
    finally:
        await supervisor.stop()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    opened = Home.open(tmp_path / "home")
    yield opened
    opened.close()


async def test_nats_is_spoken_to_over_tls_and_by_no_other_way(home: Home, certificates: Certificates) -> None:
    async with nats_server(home, certificates) as port:
        password = SecretStr(server_configuration.passwords_in(home.secrets)["agent"])
        bus = Bus("agent", f"nats://127.0.0.1:{port}", password, tls(certificates.ca))
        async with asyncio.timeout(10):
            await bus.connect()
        assert bus.nats.is_connected
        await bus.stop()
        with pytest.raises((nats.errors.Error, TimeoutError)):
            async with asyncio.timeout(3):
                await nats.connect(
                    f"nats://agent:{password.get_secret_value()}@127.0.0.1:{port}",
                    allow_reconnect=False,
                    connect_timeout=1,
                    error_cb=_quiet,
                )


async def _quiet(_: Exception) -> None:
    """What fails is told by the test."""


# nats-py leaves the socket of a refused certificate to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_nats_server_of_another_authority_is_not_talked_to_however_often_it_is_tried(  # OP-3
    home: Home, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shared.messaging.bus.CONNECT_SECONDS", 0.3)
    async with nats_server(home, certificates) as port:
        password = SecretStr(server_configuration.passwords_in(home.secrets)["agent"])
        connecting = asyncio.create_task(Bus("agent", f"nats://127.0.0.1:{port}", password, tls(certificates.stranger)).connect())

        async def tried_again() -> bool:
            return caplog.text.count("NATS does not answer yet") >= 2

        await eventually(tried_again, 10)
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        assert not connecting.done()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        gc.collect()


async def test_a_nats_server_without_tls_is_told_nothing_at_all(certificates: Certificates) -> None:
    heard = bytearray()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","auth_required":true,"max_payload":1048576}\r\n')
        heard.extend(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bus = Bus("agent", f"nats://127.0.0.1:{port}", SecretStr("hunter2"), tls(certificates.ca))
        with pytest.raises((ssl.SSLError, nats.errors.Error, TimeoutError, OSError)):
            async with asyncio.timeout(3):
                await bus.connect()
    assert heard  # the beginning of a handshake
    assert b"hunter2" not in heard
    assert b"CONNECT" not in heard


@asynccontextmanager
async def encrypted(url: str, certificates: Certificates) -> AsyncIterator[str]:
    """The address of a PostgreSQL server that speaks TLS: what stands before the one at `url`, whose build cannot, answers as it would."""
    to = urlsplit(url)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.certificate, certificates.key)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(8) != SSL_REQUEST:
            writer.close()
            return
        writer.write(b"S")
        with contextlib.suppress(OSError):
            await writer.start_tls(context)
            there = await asyncio.open_connection(to.hostname, to.port)
            await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        netloc = f"{to.username}:{to.password}@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield urlunsplit(to._replace(netloc=netloc))


async def test_postgresql_is_spoken_to_over_tls_with_a_known_authority_alone(postgres_url: str, certificates: Certificates) -> None:
    async with encrypted(postgres_url, certificates) as url:
        pool = await open_pool(DatabaseSettings(DATABASE_URL=url, MARGINALIA_CA=certificates.ca).database, "notes", size=1)
        try:
            assert await pool.fetchval("SELECT 1") == 1
        finally:
            await pool.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncpg.connect(DatabaseSettings(DATABASE_URL=url, MARGINALIA_CA=certificates.stranger).database, timeout=5)


async def test_a_database_without_tls_is_told_no_password(postgres_url: str, certificates: Certificates) -> None:
    with pytest.raises(ConnectionError, match="rejected SSL upgrade"):
        await asyncpg.connect(DatabaseSettings(DATABASE_URL=postgres_url, MARGINALIA_CA=certificates.ca).database, timeout=5)


@asynccontextmanager
async def https(app: Starlette, certificates: Certificates) -> AsyncIterator[int]:
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, ssl_certfile=certificates.certificate, ssl_keyfile=certificates.key, log_config=None, lifespan="off")
    )
    serving = asyncio.create_task(server._serve())  # without its own signal handlers
    try:
        await eventually(lambda: _listens(port), 10)
        yield port
    finally:
        server.should_exit = True
        await serving


async def test_qdrant_is_asked_over_tls_with_a_known_authority_alone(certificates: Certificates) -> None:
    asked: list[str] = []

    async def answer(request: Request) -> JSONResponse:
        asked.append(request.headers.get("api-key", ""))
        return JSONResponse({"result": {"exists": False}, "status": "ok", "time": 0})

    async with https(Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST", "PUT"])]), certificates) as port:
        for ca, heard in ((certificates.stranger, []), (certificates.ca, ["k-1"])):
            client = server_index.connect(f"https://127.0.0.1:{port}", "k-1", tls(ca))
            try:
                if heard:
                    assert not await client.collection_exists("x")
                else:
                    with pytest.raises(ServiceError) as refused:
                        await server_index.ServerIndex(client).count()
                    assert refused.value.code is ErrorCode.UNAVAILABLE
            finally:
                await client.close()
            assert asked == heard


async def test_the_gateway_speaks_https_where_it_has_a_certificate(
    nats_url: str, database_url: str, certificates: Certificates, tmp_path: Path
) -> None:
    port = free_port()
    settings = GatewaySettings(
        NATS_URL=nats_url,
        DATABASE_URL=database_url,
        MARGINALIA_HOME=tmp_path,
        MARGINALIA_PORT=port,
        MARGINALIA_ADMIN_PASSWORD=PASSWORD,
        MARGINALIA_TLS_CERTIFICATE=certificates.certificate,
        MARGINALIA_TLS_KEY=certificates.key,
    )
    base_url = f"https://127.0.0.1:{port}"
    async with running(serve_gateway, settings):
        await eventually(lambda: _listens(port), 15)
        async with httpx.AsyncClient(base_url=base_url, verify=tls(certificates.ca), headers={"origin": base_url}) as http:
            login = await http.post("/api/auth/login", json={"username": "admin", "password": PASSWORD})
            assert login.status_code == 200, login.text
            cookie = login.headers["set-cookie"]
            assert cookie.startswith("__Host-")
            assert "Secure" in cookie
            other = {"origin": f"http://127.0.0.1:{port}"}
            assert (await http.post("/api/auth/login", json={"username": "admin", "password": PASSWORD}, headers=other)).status_code == 403
        async with httpx.AsyncClient(verify=tls(certificates.stranger)) as http:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await http.get(f"{base_url}/healthz")
        async with httpx.AsyncClient() as http:
            with pytest.raises(httpx.TransportError):
                await http.get(f"http://127.0.0.1:{port}/healthz")


def test_what_cannot_be_trusted_is_refused_at_the_start(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for wrong in (tmp_path / "no.pem", tmp_path / "none.pem"):
        with pytest.raises(ValidationError, match="MARGINALIA_CA"):
            ServiceSettings(MARGINALIA_CA=wrong)
    with pytest.raises(ValidationError, match="QDRANT_URL must begin with https://"):
        RetrievalSettings(MARGINALIA_CA=certificates.ca, QDRANT_URL="http://qdrant:6333")
    with pytest.raises(ValidationError, match="go together"):
        GatewaySettings(MARGINALIA_TLS_KEY=certificates.key)
    kept = DatabaseSettings(DATABASE_URL="postgresql://u@h/d?sslmode=verify-ca", MARGINALIA_CA=certificates.ca).database
    assert kept == "postgresql://u@h/d?sslmode=verify-ca"
