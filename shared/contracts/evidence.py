"""The evidence family: retrieval runs verified against what is published now, and model requests prepared from them.

`contexts.evidence.*` is served by contexts and asked by gateway, for admins (RC-1, RC-11); `retrieval.evidence.verify` is served by
retrieval and asked by contexts. A request is sent by the agent, which asks contexts for it and gives the answer back to be kept (RC-20).

A snapshot is a JSON object; it is stored, listed and exported as it was made, or as it was imported. Records of the format before
`protocol` (RC-16) have other fields, so a snapshot crosses as an object, not as a model.
"""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from shared.contracts.retrieval import CatalogRevision, TextPublication, VectorPublication
from shared.contracts.subject import Message, Query

Protocol = Literal["responses"]
ProviderProfile = Literal["compatible", "openai", "deepseek", "bailian"]
Outcome = Literal["answer_candidate", "insufficient_evidence", "refused", "failed", "incomplete", "rejected"]

MODEL_PATTERN = r"^[A-Za-z0-9._:/-]{1,128}$"  # RC-2
OUTPUT_TOKENS_MIN, OUTPUT_TOKENS_MAX = 16, 4096
INPUT_CHARACTERS_MIN, INPUT_CHARACTERS_MAX = 1024, 24_000
EVIDENCE_MAX = 10
PAGE_SIZE_MAX = 100
ANSWER_CHARACTERS_MAX = 32_000  # RC-14
# How long a provider's answer is waited for.
ANSWER_SECONDS_MAX = 300.0
# For a part of an export; the first one, the manifest, is made of all of them.
EXPORT_SECONDS_MAX = 120.0

# What may differ between a run and the present, as `changed` of `evidence_stale` names it.
Difference = Literal[
    "run",
    "text_publication",
    "vector_publication",
    "embedding_space",
    "catalog_revision",
    "corpus_fingerprint",
    "document",
    "chunk",
    "source",
]


class Completion(Message):
    """How the model is to be asked. `temperature` None: not said."""

    protocol: Protocol = "responses"
    provider_profile: ProviderProfile = "compatible"
    model: str
    output_tokens: int = 512
    temperature: float | None = None


class PrepareContext(Message):
    """A model request to be prepared from a stored run; ranges as in RC-2."""

    retrieval_run_id: UUID
    completion: Completion
    max_input_characters: int = 10_000
    max_evidence: int = 5


class Candidate(Message):
    """A passage of a verified run, `rank` from 1, with where it is from (RC-5).

    Attributes:
        knowledge_id, knowledge_version: the note, and how often it was published.
        document_id, document_version: its published text, and that text's hash.
        source_id, source_version: the workspace, and its catalog revision.
        source_url, category: from the front matter; may be None.
        start, end: code points of the note's content; `sha256` is of `text` in UTF-8.
    """

    knowledge_id: UUID
    knowledge_version: int
    document_id: UUID
    document_version: str
    source_id: UUID
    source_version: int
    source_url: str | None
    title: str
    category: str | None
    chunk_id: UUID
    ordinal: int
    text: str
    start: int
    end: int
    sha256: str
    rank: int


class VerifyEvidence(Message):
    """A run by its id."""

    run: UUID


class VerifiedEvidence(Message):
    """A run that agrees in everything with what is published now (RC-4), its candidates by rank."""

    mode: Literal["keyword_chunks", "vector", "hybrid"]
    query: str
    text_publication: list[TextPublication]
    vector_publication: list[VectorPublication] | None
    catalog_revision: list[CatalogRevision]
    corpus_fingerprint: str
    candidates: list[Candidate]


class ContextRef(Message):
    """Names one snapshot."""

    context: UUID


class StoredContext(Message):
    """A snapshot as it is stored."""

    snapshot: dict[str, Any]


class ListContexts(Message):
    """A page, newest first; of it what comes after `skip` items. `until`: as the page's first part said."""

    page: int = 1
    page_size: int = 20
    skip: int = 0
    until: int | None = None


class ContextPage(Message):
    """One page of snapshots, or as many of its items as fit into a message, at least one; `until` fixes what the page is of."""

    items: list[dict[str, Any]]
    page: int
    page_size: int
    total: int
    until: int

    @property
    def length(self) -> int:
        """How many items the whole page has."""
        return max(0, min(self.page_size, self.total - (self.page - 1) * self.page_size))


class ExportContexts(Message):
    """A part of the export. `until` None: the manifest, which says up to where the export goes; then the records after `after`, oldest
    first, as many as fit.
    """

    after: int = 0
    until: int | None = None


class ContextLines(Message):
    """Lines as they are exported. The whole is there once `after` has reached `until`; both go into the next question."""

    lines: list[str]
    after: int
    until: int


class ParseResponse(Message):
    """What a provider answered to a snapshot's request, wherever it was obtained."""

    context: UUID
    response: Any


class ParsedResponse(Message):
    """What a response amounts to (RC-12 to RC-15).

    Attributes:
        reason: a stable slug; None for a candidate.
        text: None unless it is a candidate, or says that the evidence does not suffice.
        citations: the labels that the text cites, in the order of first citation.
        usage: counts as reported, None where one was not; None where none were.
    """

    outcome: Outcome
    reason: str | None = None
    text: str | None = None
    citations: list[str] = []
    response_id: str | None = None
    model: str | None = None
    usage: dict[str, int | None] | None = None


class SendableContext(Message):
    """The request of a snapshot, verified anew just now (RC-20). `input_characters` and the body's limits are for whoever sends it."""

    snapshot: dict[str, Any]


class KeepAnswer(Message):
    """What a provider has answered to a snapshot's request, as it came; to be judged and stored.

    Attributes:
        id: the answer's; kept once, however often it is asked for.
        provider: by its name in the configuration.
        body: the response's bytes, in base64.
        took_ms: from sending to the last byte.
    """

    id: UUID
    context: UUID
    provider: str
    body: str
    took_ms: int


class Answer(ParsedResponse):
    """An answer as it is stored beside its snapshot. `response_sha256` is of the response's bytes."""

    id: UUID
    context_id: UUID
    provider: str
    took_ms: int
    response_sha256: str
    created_by: UUID
    created_at: datetime


class AnswerList(Message):
    """All answers of a snapshot, oldest first."""

    items: list[Answer]


EVIDENCE_VERIFY = Query("retrieval.evidence.verify", VerifyEvidence, VerifiedEvidence, owner="retrieval", askers=("contexts",))
CONTEXT_PREPARE = Query("contexts.evidence.prepare", PrepareContext, StoredContext, owner="contexts", askers=("gateway",), idempotent=False)
CONTEXT_GET = Query("contexts.evidence.get", ContextRef, StoredContext, owner="contexts", askers=("gateway",))
CONTEXT_LIST = Query("contexts.evidence.list", ListContexts, ContextPage, owner="contexts", askers=("gateway",))
CONTEXT_EXPORT = Query(
    "contexts.evidence.export", ExportContexts, ContextLines, owner="contexts", askers=("gateway",), timeout_seconds=EXPORT_SECONDS_MAX
)
CONTEXT_SENDABLE = Query("contexts.evidence.sendable", ContextRef, SendableContext, owner="contexts", askers=("agent",))
ANSWER_KEEP = Query("contexts.answer.keep", KeepAnswer, Answer, owner="contexts", askers=("agent",))
ANSWER_LIST = Query("contexts.answer.list", ContextRef, AnswerList, owner="contexts", askers=("gateway",))
# The agent has the providers' keys: it sends the request, once.
CONTEXT_ANSWER = Query(
    "agent.evidence.answer", ContextRef, Answer, owner="agent", askers=("gateway",), timeout_seconds=ANSWER_SECONDS_MAX, idempotent=False
)
CONTEXT_PARSE = Query("contexts.evidence.parse", ParseResponse, ParsedResponse, owner="contexts", askers=("gateway",))
