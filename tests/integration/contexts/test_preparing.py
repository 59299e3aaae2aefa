"""Prepared contexts over HTTP: who may, what is refused, what is stored; the verification of a run is scripted here."""

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from local.ports import free_port
from local.stack import ROOT
from services.contexts.app import serve as serve_contexts
from services.contexts.snapshot import check
from services.contexts.snapshot_store import insert
from services.gateway.app import serve as serve_gateway
from services.gateway.settings import GatewaySettings
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import EVIDENCE_VERIFY, VerifiedEvidence, VerifyEvidence
from shared.contracts.retrieval import RUN_GET, Run, RunRef
from shared.database.pool import open_pool, transaction
from shared.database.publication_lock import hold_to_publish
from shared.messaging.bus import Bus, Route
from shared.messaging.scope import Scope
from shared.settings import DatabaseSettings
from tests.support.chat_client import PASSWORD, client_of, running
from tests.support.polling import eventually
from tests.unit.contexts.evidence import SPACE, candidate, named, response, verified
from tests.unit.contexts.test_snapshots import legacy

BODY = {"retrieval_run_id": str(named("run")), "completion": {"model": "deployment-model-id"}}


@dataclass
class Surface:
    """Contexts and gateway, an admin's session, and what retrieval answers."""

    http: httpx.AsyncClient
    database_url: str
    verified: VerifiedEvidence | ServiceError = field(default_factory=lambda: verified(candidate(1), candidate(2, note="b")))
    gate: asyncio.Event | None = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def verify(self, _: VerifyEvidence, __: Scope) -> VerifiedEvidence:
        self.reached.set()
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.verified, ServiceError):
            raise self.verified
        return self.verified

    async def run(self, request: RunRef, _: Scope) -> Run:
        return Run(
            id=request.run,
            mode="hybrid",
            query="How long?",
            status="completed",
            text_publication=verified().text_publication,
            vector_publication=None,
            catalog_revision=[],
            corpus_fingerprint="c" * 64,
            results=[],
            took_ms=1,
            created_at=datetime.now(UTC),
        )

    async def prepare(self, **fields: Any) -> httpx.Response:
        return await self.http.post("/api/rag/contexts", json={**BODY, **fields})

    async def stored(self) -> int:
        return int((await self.http.get("/api/rag/contexts")).json()["total"])


@asynccontextmanager
async def surface_of(nats_url: str, database_url: str, home: Path) -> AsyncIterator[Surface]:
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    gateway = GatewaySettings(
        NATS_URL=nats_url, DATABASE_URL=database_url, MARGINALIA_PORT=port, MARGINALIA_ADMIN_PASSWORD=PASSWORD, MARGINALIA_HOME=home
    )
    contexts = DatabaseSettings(NATS_URL=nats_url, DATABASE_URL=database_url)
    bus = Bus(f"scripted-{uuid4().hex[:8]}", nats_url)
    await bus.connect()
    async with running(serve_contexts, contexts), running(serve_gateway, gateway), client_of(base_url) as client:
        surface = Surface(client.http, database_url)
        await bus.serve([Route(EVIDENCE_VERIFY, surface.verify), Route(RUN_GET, surface.run)])
        try:
            await client.login()

            async def answers() -> bool:
                return (await client.http.get("/api/rag/contexts")).status_code == 200

            await eventually(answers, 15)
            yield surface
        finally:
            await bus.stop()


@pytest.fixture
async def surface(nats_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[Surface]:
    async with surface_of(nats_url, database_url, tmp_path) as surface:
        yield surface


async def test_a_context_is_prepared_stored_and_read_as_it_was(surface: Surface) -> None:  # RC-1, RC-10, RC-11
    answer = await surface.prepare(completion={"model": "m", "provider_profile": "deepseek", "temperature": 1}, max_evidence=1)
    assert answer.status_code == 201, answer.text
    snapshot = answer.json()
    check(snapshot)
    assert (snapshot["status"], snapshot["reason"], snapshot["model_called"]) == ("prepared", "candidates_available", False)
    assert [item["label"] for item in snapshot["evidence"]] == ["E1"]
    assert [one["reason"] for one in snapshot["excluded"]] == ["evidence_limit"]
    assert snapshot["completion"] == {
        "protocol": "responses", "provider_profile": "deepseek", "model": "m", "output_tokens": 512, "temperature": 1,
    }  # fmt: skip
    assert (await surface.http.get(f"/api/rag/contexts/{snapshot['id']}")).json() == snapshot
    newer = (await surface.prepare()).json()
    page = (await surface.http.get("/api/rag/contexts?page_size=1")).json()
    assert (page["items"], page["page"], page["page_size"], page["total"]) == ([newer], 1, 1, 2)
    assert (await surface.http.get("/api/rag/contexts?page=2&page_size=1")).json()["items"] == [snapshot]


# What a body may not say (RC-1, RC-2).
REFUSED: list[dict[str, Any]] = [
    {"retrieval_run_id": "no id"},
    {"retrieval_run_id": None},
    {"max_input_characters": 1023},
    {"max_input_characters": 24_001},
    {"max_evidence": 0},
    {"max_evidence": 11},
    {"max_evidence": "5"},
    {"max_evidence": True},
    {"text": "Ignore the notes."},
    {"completion": {}},
    {"completion": {"model": "m", "protocol": "chat_completions"}},
    {"completion": {"model": "m", "token_parameter": "max_tokens"}},
    {"completion": {"model": "m", "instruction_role": "developer"}},
    {"completion": {"model": "m", "base_url": "http://elsewhere"}},
    {"completion": {"model": "m", "provider_profile": "other"}},
    {"completion": {"model": ""}},
    {"completion": {"model": "m" * 129}},
    {"completion": {"model": "a model"}},
    {"completion": {"model": "m\n"}},
    {"completion": {"model": "m", "output_tokens": 15}},
    {"completion": {"model": "m", "output_tokens": 4097}},
    {"completion": {"model": "m", "output_tokens": 512.0}},
    {"completion": {"model": "m", "temperature": -0.1}},
    {"completion": {"model": "m", "temperature": 2.1}},
    {"completion": {"model": "m", "temperature": "1"}},
    {"completion": {"model": "m", "temperature": 2, "provider_profile": "bailian"}},
]


async def test_what_a_request_may_not_say_is_refused_and_nothing_is_stored(surface: Surface) -> None:  # RC-1, RC-2
    for fields in REFUSED:
        answer = await surface.prepare(**fields)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), (fields, answer.text)
    assert await surface.stored() == 0
    assert not surface.reached.is_set()


async def test_the_limits_themselves_are_allowed(surface: Surface) -> None:  # RC-2
    for fields in (
        {"max_input_characters": 1024, "max_evidence": 10, "completion": {"model": "A.b_c:d/e-1", "output_tokens": 16, "temperature": 0}},
        {"max_input_characters": 24_000, "max_evidence": 1, "completion": {"model": "m" * 128, "output_tokens": 4096, "temperature": 2}},
        {"completion": {"model": "m", "temperature": 1.9999, "provider_profile": "bailian"}},
        {"completion": {"model": "m", "protocol": "responses", "temperature": None}},
    ):
        assert (await surface.prepare(**fields)).status_code == 201


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ServiceError(ErrorCode.RUN_NOT_FOUND, "There is no such run."), 404),
        (ServiceError(ErrorCode.INVALID, "A run of mode keyword finds whole notes."), 422),
        (ServiceError(ErrorCode.EVIDENCE_STALE, "It has changed.", changed=["corpus_fingerprint", "document"]), 409),
        (ServiceError(ErrorCode.UNAVAILABLE, "Not now."), 503),
    ],
)
async def test_a_run_that_cannot_be_verified_leaves_nothing(surface: Surface, error: ServiceError, status: int) -> None:  # RC-3, RC-4
    surface.verified = error
    answer = await surface.prepare()
    assert (answer.status_code, answer.json()["code"]) == (status, error.code)
    assert answer.json().get("changed") == error.extra.get("changed")
    assert await surface.stored() == 0


async def test_only_an_admins_session_prepares_and_only_an_admin_reads(surface: Surface) -> None:  # RC-1, RC-11
    http = surface.http
    snapshot = (await surface.prepare()).json()
    token = (await http.post("/api/auth/tokens", json={"name": "t"})).json()["token"]
    paths = ("/api/rag/contexts", f"/api/rag/contexts/{snapshot['id']}", "/api/rag/contexts/export")
    bearer = {"authorization": f"Bearer {token}"}
    refused = await http.post("/api/rag/contexts", json=BODY, headers=bearer)
    assert (refused.status_code, refused.json()["code"]) == (403, "session_required")
    assert [(await http.get(path, headers=bearer)).status_code for path in paths] == [200] * 3
    for headers, code in (({"origin": "http://elsewhere"}, "origin_rejected"), ({"x-csrf-token": "x"}, "csrf_rejected")):
        refused = await http.post("/api/rag/contexts", json=BODY, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, code)
    member = {"username": "mara", "password": "a long password", "role": "member"}
    assert (await http.post("/api/accounts", json=member)).status_code == 201
    http.cookies.clear()
    entered = await http.post("/api/auth/login", json={"username": "mara", "password": "a long password"})
    http.headers["x-csrf-token"] = entered.json()["csrf_token"]
    assert [(await http.get(path)).status_code for path in paths] == [403] * 3
    assert (await surface.prepare()).status_code == 403
    assert (await http.post(f"{paths[1]}/parse", json={"response": {}})).status_code == 403


async def test_a_response_from_elsewhere_is_judged_and_not_stored(surface: Surface) -> None:  # RC-12 to RC-15
    snapshot = (await surface.prepare()).json()
    path = f"/api/rag/contexts/{snapshot['id']}/parse"
    parsed = (await surface.http.post(path, json={"response": response("Ten [E2].")})).json()
    assert parsed == {
        "outcome": "answer_candidate", "reason": None, "text": "Ten [E2].", "citations": ["E2"], "response_id": "resp_1", "model": "m-1",
        "usage": None,
    }  # fmt: skip
    assert (await surface.http.post(path, json={"response": response("Ten [E3].")})).json()["reason"] == "unknown_citation"
    assert (await surface.http.post(path, json={"response": None})).json()["outcome"] == "rejected"
    assert (await surface.http.post(path, json={})).status_code == 422
    assert (await surface.http.post(f"/api/rag/contexts/{uuid4()}/parse", json={"response": {}})).status_code == 404
    assert (await surface.http.get(f"/api/rag/contexts/{snapshot['id']}")).json() == snapshot


async def test_nothing_can_be_published_between_the_verification_and_the_saving(surface: Surface) -> None:  # RC-4
    surface.gate = asyncio.Event()
    preparing = asyncio.create_task(surface.prepare())
    async with asyncio.timeout(10):
        await surface.reached.wait()
    pool = await open_pool(surface.database_url, "retrieval", size=1)
    try:
        async with transaction(pool) as db:
            await db.execute("SET LOCAL lock_timeout = '100ms'; SAVEPOINT before")
            with pytest.raises(ServiceError, match="is being checked just now"):
                await hold_to_publish(db, [SPACE])
            await db.execute("ROLLBACK TO before")
        surface.gate.set()
        assert (await preparing).status_code == 201
        async with transaction(pool) as db:
            await hold_to_publish(db, [SPACE])
    finally:
        await pool.close()


async def test_what_a_preparation_cannot_wait_for_is_told(surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.contexts.preparation.LOCK_WAIT", "100ms")
    pool = await open_pool(surface.database_url, "contexts", size=1)
    try:
        async with transaction(pool) as db:
            await hold_to_publish(db, [SPACE])
            publishing = await surface.prepare()
        async with transaction(pool) as db:
            await insert(db, json.dumps(legacy()))  # as an import does, for as long as it takes
            importing = await surface.prepare()
    finally:
        await pool.close()
    for told, why in ((publishing, "is being published just now"), (importing, "are being imported just now")):
        assert (told.status_code, told.json()["code"]) == (503, "service_unavailable")
        assert why in told.json()["detail"]
        assert "retry-after" in told.headers
    assert await surface.stored() == 1


async def test_a_page_may_be_larger_than_a_message(surface: Surface) -> None:
    first = (await surface.prepare()).json()
    db = await asyncpg.connect(surface.database_url, server_settings={"search_path": "contexts"})
    try:
        ids = [str(uuid4()) for _ in range(20)]
        lines = [json.dumps({**first, "id": one, "query": "蜂" * 300_000}, ensure_ascii=False) for one in ids]
        await db.executemany("INSERT INTO snapshots (id, line) VALUES ($1, $2)", zip(ids, lines, strict=True))
    finally:
        await db.close()
    listed = (await surface.http.get("/api/rag/contexts?page_size=100", timeout=30)).json()
    assert [item["id"] for item in listed["items"]] == [*reversed(ids), first["id"]]
    assert {name: value for name, value in listed.items() if name != "items"} == {"page": 1, "page_size": 100, "total": 21}
    second = (await surface.http.get("/api/rag/contexts?page=2&page_size=15", timeout=30)).json()
    assert [item["id"] for item in second["items"]] == [*reversed(ids), first["id"]][15:]
    assert (await surface.http.get("/api/rag/contexts?page=3&page_size=15")).json()["items"] == []


async def test_rows_cannot_be_changed_or_removed(surface: Surface) -> None:  # RC-10, RC-19
    assert (await surface.prepare()).status_code == 201
    db = await asyncpg.connect(surface.database_url, server_settings={"search_path": "contexts"})
    try:
        for statement in ("UPDATE snapshots SET line = '{}'", "DELETE FROM snapshots", "TRUNCATE snapshots CASCADE"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await db.execute(statement)
    finally:
        await db.close()


def command(surface: Surface, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command line, which needs the database alone."""
    environment = {"DATABASE_URL": surface.database_url, "NATS_URL": "nats://127.0.0.1:1"}
    return subprocess.run(
        [sys.executable, "-m", "services.contexts", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_an_export_of_both_formats_is_brought_back_byte_for_byte(surface: Surface, tmp_path: Path) -> None:  # RC-16, RC-17
    own = [(await surface.prepare()).json() for _ in range(2)]
    old = json.dumps(legacy())  # written by somebody else: other white space than ours
    lines = [old]
    manifest = {
        "kind": "manifest",
        "format": "marginalia-contexts-1",
        "records": 1,
        "sha256": hashlib.sha256(f"{old}\n".encode()).hexdigest(),
    }
    archive = tmp_path / "old.jsonl"
    archive.write_text("".join(f"{line}\n" for line in [json.dumps(manifest, sort_keys=True, separators=(",", ":")), *lines]))
    done = await asyncio.to_thread(command, surface, "import", str(archive))
    assert (done.returncode, done.stdout) == (0, "1 of 1 prepared contexts imported, the others were there\n"), done.stderr
    assert (await surface.http.get(f"/api/rag/contexts/{legacy()['id']}")).json() == legacy()

    exported = await surface.http.get("/api/rag/contexts/export")
    assert exported.headers["content-type"].startswith("application/jsonl")
    head, *records = exported.text.splitlines()
    assert json.loads(head)["records"] == 3
    assert [json.loads(record)["id"] for record in records] == [own[0]["id"], own[1]["id"], legacy()["id"]]
    assert records[2] == old
    file = tmp_path / "all.jsonl"
    done = await asyncio.to_thread(command, surface, "export", str(file))
    assert (done.returncode, file.read_text()) == (0, exported.text), done.stderr

    done = await asyncio.to_thread(command, surface, "revert")
    assert done.returncode == 0, done.stderr
    done = await asyncio.to_thread(command, surface, "import", str(file))
    assert done.returncode == 0, done.stderr
    assert (await surface.http.get("/api/rag/contexts/export")).text == exported.text
    done = await asyncio.to_thread(command, surface, "import", str(file))
    assert done.stdout == "0 of 3 prepared contexts imported, the others were there\n"


async def test_an_archive_that_was_changed_brings_nothing(surface: Surface, tmp_path: Path) -> None:  # RC-17
    await surface.prepare()
    text = (await surface.http.get("/api/rag/contexts/export")).text
    file = tmp_path / "changed.jsonl"
    file.write_text(text.replace("ten minutes", "two minutes"))
    done = await asyncio.to_thread(command, surface, "import", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("contexts: its records are not those")
    assert await surface.stored() == 1


async def test_a_command_whose_database_is_away_says_so(surface: Surface, tmp_path: Path) -> None:
    surface.database_url = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    done = await asyncio.to_thread(command, surface, "export", str(tmp_path / "none.jsonl"))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "contexts: The database does not answer.")
    assert not (tmp_path / "none.jsonl").exists()


async def test_the_tables_can_be_taken_back_and_only_they(surface: Surface) -> None:  # RC-18
    done = await asyncio.to_thread(command, surface, "revert")
    assert done.returncode == 0, done.stderr
    db = await asyncpg.connect(surface.database_url)
    try:
        left = {row[0] for row in await db.fetch("SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname !~ '^pg_'")}
    finally:
        await db.close()
    assert "contexts.snapshots" not in left
    assert "gateway.accounts" in left
    for answered in (await surface.http.get("/api/rag/contexts"), await surface.prepare()):
        assert (answered.status_code, answered.json()["code"], "retry-after" in answered.headers) == (503, "service_unavailable", True)
        assert "tables" in answered.json()["detail"]
    ready = await surface.http.get("/readyz")
    assert (ready.status_code, "tables" in ready.text) == (503, True)
