"""Snapshots of prepared requests: made, and checked against themselves whichever format they have (RC-10, RC-16, RC-17). Pure."""

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from services.contexts import legacy_snapshot, responses_parser
from services.contexts.canonical_json import canonical, sha256
from services.contexts.evidence_prompt import INSTRUCTIONS, VERSION
from services.contexts.responses_request import input_characters, request_body
from services.contexts.selection import select
from shared.contracts.evidence import Completion, ParsedResponse, PrepareContext, VerifiedEvidence

LABEL = re.compile(r"E[1-9][0-9]*")


class SnapshotInvalid(Exception):
    """A record does not agree with itself; the message says in what."""


def prepared(request: PrepareContext, verified: VerifiedEvidence, *, id_: UUID, account: UUID, created_at: datetime) -> dict[str, Any]:
    """A snapshot of what the request makes of a verified run. Nobody is asked, nothing is estimated."""
    selection = select(
        verified.query, verified.candidates, max_evidence=request.max_evidence, max_input_characters=request.max_input_characters
    )
    body = request_body(request.completion, INSTRUCTIONS, verified.query, selection.evidence) if selection.evidence else None
    dumped = verified.model_dump(mode="json")
    return {
        "id": str(id_),
        "retrieval_run_id": str(request.retrieval_run_id),
        "retrieval_mode": verified.mode,
        "query": verified.query,
        "kind": "prepared_request",
        "model_called": False,
        "status": selection.status,
        "reason": selection.reason,
        "prompt_version": VERSION,
        "completion": request.completion.model_dump(mode="json"),
        "max_input_characters": request.max_input_characters,
        "max_evidence": request.max_evidence,
        "input_characters": selection.input_characters,
        **{name: dumped[name] for name in ("text_publication", "vector_publication", "catalog_revision", "corpus_fingerprint")},
        "evidence": selection.evidence,
        "excluded": selection.excluded,
        "request_body": body,
        "request_sha256": sha256(body) if body is not None else None,
        "created_by": str(account),
        "created_at": created_at.isoformat().replace("+00:00", "Z"),
    }


def is_legacy(record: dict[str, Any]) -> bool:
    """Whether it is of the format before `protocol`."""
    return isinstance(record.get("completion"), dict) and "protocol" not in record["completion"]


def check(record: Any) -> None:
    """That a record is whole: its body is what its own fields make, and its hash is the body's.

    Raises:
        SnapshotInvalid: it is not.
    """
    if not isinstance(record, dict) or record.get("kind") != "prepared_request" or record.get("model_called") is not False:
        raise SnapshotInvalid("it is no prepared request")
    try:
        if str(UUID(record["id"])) != record["id"]:
            raise SnapshotInvalid("its id is not written as ids are")
        rebuilt = _rebuilt(record)
        digest = sha256(rebuilt) if rebuilt is not None else None
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise SnapshotInvalid(f"its fields make no request ({type(error).__name__})") from None
    # Compared as JSON: `true` is not `1`.
    if canonical(record.get("request_body")) != canonical(rebuilt):
        raise SnapshotInvalid("its request body is not what its fields make")
    if record.get("request_sha256") != digest:
        raise SnapshotInvalid("its hash is not that of its request body")


def labels(record: dict[str, Any]) -> frozenset[str]:
    """The labels that an answer may cite."""
    return frozenset(item["label"] for item in record["evidence"])


def parse(record: dict[str, Any], response: Any) -> ParsedResponse:
    """What a response to the record's request amounts to, by the record's own protocol."""
    parser = legacy_snapshot.parse if is_legacy(record) else responses_parser.parse
    return parser(response, labels(record))


def _rebuilt(record: dict[str, Any]) -> dict[str, Any] | None:
    """The body by the record's protocol; None where there is no evidence."""
    evidence = record["evidence"]
    _check_evidence(evidence)
    if (record["status"] == "prepared") != bool(evidence):
        raise SnapshotInvalid("its status does not go with its evidence")
    if is_legacy(record):
        return legacy_snapshot.request_body(record) if evidence else None
    return _rebuilt_responses(record, evidence)


def _rebuilt_responses(record: dict[str, Any], evidence: list[dict[str, Any]]) -> dict[str, Any] | None:
    if record["prompt_version"] != VERSION:
        raise SnapshotInvalid(f"its prompt version {record['prompt_version']!r} is not known")
    for item in evidence:
        if hashlib.sha256(item["text"].encode()).hexdigest() != item["sha256"]:
            raise SnapshotInvalid(f"the text of {item['label']} has another hash")
    characters = input_characters(record["query"], evidence) if evidence else 0
    if record["input_characters"] != characters or characters > record["max_input_characters"]:
        raise SnapshotInvalid("its input_characters are not those of its input")
    _check_fields(record)
    completion = Completion.model_validate(record["completion"])
    return request_body(completion, INSTRUCTIONS, record["query"], evidence) if evidence else None


def _check_fields(record: dict[str, Any]) -> None:
    """That all is there that readers of a snapshot rely on; more may be.

    Raises:
        KeyError, TypeError, ValueError: it is not.
    """
    request = PrepareContext.model_validate(record)
    if record["completion"] != request.completion.model_dump(mode="json"):
        raise SnapshotInvalid("its completion is not one of this protocol")
    VerifiedEvidence.model_validate({**record, "mode": record["retrieval_mode"], "candidates": record["evidence"]})
    if len(record["evidence"]) > record["max_evidence"]:
        raise SnapshotInvalid("it has more evidence than it may")
    reasons = {"candidates_available"} if record["evidence"] else {"no_candidates", "context_budget"}
    if record["status"] not in ("prepared", "insufficient_evidence") or record["reason"] not in reasons:
        raise SnapshotInvalid("its reason does not go with its status")
    for one in record["excluded"]:
        UUID(one["chunk_id"])
        if one["reason"] not in ("overlap", "budget", "evidence_limit"):
            raise SnapshotInvalid("a passage was left out for no known reason")
    UUID(record["created_by"])
    datetime.fromisoformat(record["created_at"])


def _check_evidence(evidence: Sequence[Any]) -> None:
    if not isinstance(evidence, list):
        raise SnapshotInvalid("its evidence is no list")
    for number, item in enumerate(evidence, 1):
        if not isinstance(item, dict) or item.get("label") != f"E{number}" or not isinstance(item.get("text"), str):
            raise SnapshotInvalid("its evidence is not labelled E1, E2, …")
