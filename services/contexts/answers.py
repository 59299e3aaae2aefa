"""Answers to prepared requests: what may be sent, and what came of it (RC-20)."""

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from services.contexts import plain_json, snapshot
from services.contexts.snapshot_store import SnapshotStore
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import EVIDENCE_VERIFY, Answer, KeepAnswer, VerifyEvidence
from shared.database.pool import Pool, connection
from shared.messaging.client import Client
from shared.messaging.scope import Account, Scope

# What a snapshot has of the run it was made from, by the name under which a difference is told.
VERIFIED = ("text_publication", "vector_publication", "catalog_revision", "corpus_fingerprint")


class Answers:
    """See the module."""

    def __init__(self, pool: Pool, client: Client, store: SnapshotStore) -> None:
        self._pool = pool
        self._client = client
        self._store = store

    async def sendable(self, context: UUID, scope: Scope) -> dict[str, Any]:
        """A snapshot whose request may be sent now: it has one, and everything it is made of is still what is published.

        Raises:
            ServiceError: `context_not_found`; `invalid` without a body, or for the format before; `evidence_stale` with `changed`.
        """
        record = await self._store.get(context)
        if snapshot.is_legacy(record):
            raise ServiceError(ErrorCode.INVALID, "A request of the format before is kept to be read; it is not sent.")
        if record["request_body"] is None:
            raise ServiceError(ErrorCode.INVALID, "There is no evidence in this context, so there is no request to send.")
        try:
            verified = await self._client.ask(EVIDENCE_VERIFY, VerifyEvidence(run=UUID(record["retrieval_run_id"])), scope)
        except ServiceError as error:
            if error.code is not ErrorCode.RUN_NOT_FOUND:
                raise
            raise _stale(["run"]) from None
        present = verified.model_dump(mode="json")
        if changed := [name for name in VERIFIED if present[name] != record[name]]:
            raise _stale(changed)
        candidates = [candidate.model_dump(mode="json") for candidate in verified.candidates]
        if not all({name: value for name, value in item.items() if name != "label"} in candidates for item in record["evidence"]):
            raise _stale(["chunk"])
        return record

    async def keep(self, request: KeepAnswer, account: Account) -> Answer:
        """Judge a response and store what it amounts to, whatever that is: it was paid for."""
        record = await self._store.get(request.context)
        body = base64.b64decode(request.body)
        answer = Answer(
            **snapshot.parse(record, _json(body)).model_dump(),
            id=request.id,
            context_id=request.context,
            provider=request.provider,
            took_ms=request.took_ms,
            response_sha256=hashlib.sha256(body).hexdigest(),
            created_by=account.id,
            created_at=datetime.now(UTC),
        )
        async with connection(self._pool) as db:
            await db.execute(
                "INSERT INTO answers (id, snapshot, answer) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING",
                answer.id, request.context, answer.model_dump(mode="json"),
            )  # fmt: skip
            return Answer.model_validate(await db.fetchval("SELECT answer FROM answers WHERE id = $1", answer.id))

    async def of(self, context: UUID) -> list[Answer]:
        """A snapshot's answers, oldest first.

        Raises:
            ServiceError: `context_not_found`.
        """
        await self._store.get(context)
        async with connection(self._pool) as db:
            rows = await db.fetch("SELECT answer FROM answers WHERE snapshot = $1 ORDER BY position", context)
        return [Answer.model_validate(row["answer"]) for row in rows]


def _json(body: bytes) -> Any:
    try:
        return plain_json.loads(body)
    except ValueError:
        return None


def _stale(changed: list[str]) -> ServiceError:
    return ServiceError(
        ErrorCode.EVIDENCE_STALE,
        f"What this context is made of has changed: {', '.join(changed)}. Search and prepare again.",
        changed=changed,
    )
