"""Preparing a model request from a stored run: verified against what is published now, and saved before anything else can be published."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from services.contexts import archive, snapshot, snapshot_store
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import EVIDENCE_VERIFY, PrepareContext, VerifyEvidence
from shared.contracts.retrieval import RUN_GET, RunRef
from shared.database.pool import Pool, transaction
from shared.database.publication_lock import hold_to_verify
from shared.messaging.client import Client
from shared.messaging.scope import Account, Scope

# How long publishing may make a preparation wait.
LOCK_WAIT = "10s"


def require_admin(account: Account | None) -> Account:
    """Who may prepare and read (RC-1, RC-11).

    Raises:
        ServiceError: `forbidden`.
    """
    if account is None or account.role != "admin":
        raise ServiceError(ErrorCode.FORBIDDEN, "Only an admin may do this.")
    return account


class Preparation:
    """See the module."""

    def __init__(self, pool: Pool, client: Client) -> None:
        self._pool = pool
        self._client = client

    async def prepare(self, request: PrepareContext, scope: Scope) -> dict[str, Any]:
        """The snapshot, stored.

        From before the run is verified until the snapshot is committed, publishing waits: the shared side of its lock is held in the same
        transaction (RC-4). A process that dies meanwhile leaves neither a snapshot nor a lock.

        Raises:
            ServiceError: `run_not_found`; `invalid` for a run that nothing can be prepared from; `evidence_stale` with `changed`.
        """
        account = require_admin(scope.account)
        run = await self._client.ask(RUN_GET, RunRef(run=request.retrieval_run_id), scope)
        workspaces = [one.workspace for one in run.text_publication]
        async with transaction(self._pool) as db:
            await db.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
            await hold_to_verify(db, workspaces)
            verified = await self._client.ask(EVIDENCE_VERIFY, VerifyEvidence(run=request.retrieval_run_id), scope)
            record = snapshot.prepared(request, verified, id_=uuid4(), account=account.id, created_at=datetime.now(UTC))
            line = archive.line(record)
            await snapshot_store.insert(db, line)
        stored: dict[str, Any] = json.loads(line)
        return stored
