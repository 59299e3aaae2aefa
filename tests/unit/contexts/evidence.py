"""Candidates, runs and responses for tests of prepared contexts."""

import hashlib
from typing import Any
from uuid import UUID, uuid5

from shared.contracts.evidence import Candidate, Completion, PrepareContext, VerifiedEvidence
from shared.contracts.retrieval import CatalogRevision, TextPublication

SPACE = UUID("22222222-2222-4222-8222-222222222222")


def named(name: str) -> UUID:
    return uuid5(SPACE, name)


def candidate(rank: int, text: str = "Knead for ten minutes.", *, note: str = "bread", start: int | None = None) -> Candidate:
    begin = rank * 1000 if start is None else start
    return Candidate(
        knowledge_id=named(note),
        knowledge_version=3,
        document_id=named(f"{note} text"),
        document_version="d" * 64,
        source_id=SPACE,
        source_version=7,
        source_url=None,
        title=note.title(),
        category=None,
        chunk_id=named(f"{note} {rank} {start}"),
        ordinal=rank - 1,
        text=text,
        start=begin,
        end=begin + len(text),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        rank=rank,
    )


def verified(*candidates: Candidate, query: str = "How long?") -> VerifiedEvidence:
    return VerifiedEvidence(
        mode="hybrid",
        query=query,
        text_publication=[TextPublication(workspace=SPACE, id=named("text"), generation=4)],
        vector_publication=None,
        catalog_revision=[CatalogRevision(workspace=SPACE, revision=7)],
        corpus_fingerprint="c" * 64,
        candidates=list(candidates),
    )


def request(**fields: Any) -> PrepareContext:
    completion = Completion.model_validate({"model": "deployment-model-id", **fields.pop("completion", {})})
    return PrepareContext(retrieval_run_id=named("run"), completion=completion, **fields)


def response(text: str | None = "Ten minutes [E1].", **fields: Any) -> dict[str, Any]:
    """A completed response with this text."""
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "m-1",
        "output": [message] if text is not None else [],
        **fields,
    }
