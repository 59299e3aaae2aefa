"""The retrieval family: finding passages, stored runs, what is indexed. Served by retrieval; asked by gateway and agent.

A request acts for the account named in the message's headers: it finds only in workspaces that the account may read.
"""

from datetime import datetime
from typing import Literal
from uuid import UUID

from shared.contracts.subject import Message, Query

HITS_PER_SEARCH_MAX = 6  # ON-5
SEARCH_SECONDS_MAX = 30.0  # ON-5
RUN_LIMIT_MAX = 50
QUERY_CHARACTERS_MAX = 10_000
# Thousands of notes may have waited: each is read, cut and written before the one transaction that publishes them.
PUBLISH_SECONDS_MAX = 600.0

Mode = Literal["keyword", "keyword_chunks", "vector", "hybrid"]
PublishMode = Literal["auto", "manual"]


class Filters(Message):
    """Where to look. `workspaces` None: all the account may read. `path_prefix` is a prefix of the note's path; `tags`: all of them."""

    workspaces: list[UUID] | None = None
    path_prefix: str | None = None
    tags: list[str] | None = None
    include_exchanges: bool = False


class SearchRequest(Message):
    """Words, not a question to answer. `limit` at most 50."""

    query: str
    filters: Filters = Filters()
    limit: int = HITS_PER_SEARCH_MAX


class Hit(Message):
    """A passage of a note.

    Attributes:
        citation_id: names this passage as shown, for a client's card.
        block_id: stable while the passage stands where it stands in its note.
        start, end: code points of the note's content.
        content_hash: SHA-256 of the note that was indexed.
    """

    citation_id: str
    block_id: str
    workspace: UUID
    file_path: str
    title: str
    heading_path: list[str]
    start: int
    end: int
    content_hash: str
    text: str
    score: float


class SearchReply(Message):
    """The best hits, best first. `degraded`: answered without the vectors or the engine."""

    hits: list[Hit]
    degraded: bool = False


class CreateRun(Message):
    """A search whose answer is kept. `limit` 1 to 50."""

    mode: Mode
    query: str
    filters: Filters = Filters()
    limit: int = 10


class RunDocument(Message):
    """The note a result is from. `directory` is its workspace's."""

    id: UUID
    workspace: UUID
    directory: str
    path: str
    title: str
    content_hash: str


class RunChunk(Message):
    """The passage: code point offsets into the note's content, and the SHA-256 of `text` in UTF-8."""

    id: UUID
    block_id: str
    ordinal: int
    heading_path: list[str]
    text: str
    start: int
    end: int
    sha256: str


class RunResult(Message):
    """One result, `rank` from 1; `chunk` None in mode `keyword`, which answers whole notes."""

    rank: int
    score: float
    document: RunDocument
    chunk: RunChunk | None


class TextPublication(Message):
    """Which state of a workspace's text a run saw."""

    workspace: UUID
    id: UUID
    generation: int


class VectorPublication(TextPublication):
    """Which vectors over it."""

    embedding_space: str


class CatalogRevision(Message):
    """Which revision of a workspace's catalog of notes."""

    workspace: UUID
    revision: int


class RunSummary(Message):
    """A stored search but for its results.

    Attributes:
        filters, limit: as asked; None where a run was stored before they were kept.
        created_by: the account; None where a service asked.
    """

    id: UUID
    mode: Mode
    query: str
    filters: Filters | None = None
    limit: int | None = None
    status: Literal["completed", "degraded", "failed"]
    text_publication: list[TextPublication]
    vector_publication: list[VectorPublication] | None
    catalog_revision: list[CatalogRevision]
    corpus_fingerprint: str
    took_ms: int
    created_by: UUID | None = None
    created_at: datetime


class Run(RunSummary):
    """A stored search: who asked for what, and the whole answer."""

    results: list[RunResult]


class RunRef(Message):
    """Names one run; the asking account must own it or be an admin."""

    run: UUID


class ListRuns(Message):
    """Runs, newest first; an admin sees everyone's."""

    page: int = 1
    page_size: int = 20


class RunPage(Message):
    """One page."""

    items: list[RunSummary]
    page: int
    page_size: int
    total: int


class StatusRequest(Message):
    """Of one workspace, or of all that the account may read."""

    workspace: UUID | None = None


class Status(Message):
    """Counts of notes, none counted twice.

    Attributes:
        indexed: searchable by words and by vectors.
        pending: not yet searchable by words.
        held: waiting for a manual publication.
        unembedded: searchable by words, waiting for vectors, or for the index to have them again.
    """

    indexed: int
    pending: int
    held: int
    unembedded: int
    oldest_pending_seconds: float
    last_error: str | None


class PublicationRequest(Message):
    """Nothing to choose: all workspaces, admins only."""


class Publish(Message):
    """Publish what is held of a workspace, all of it or nothing; admins only."""

    workspace: UUID


class ConfigurePublishing(Message):
    """`auto`: every change publishes, and what is held does now. `manual`: changes are held until an admin publishes. Admins only."""

    workspace: UUID
    publish: PublishMode


class PublishedText(Message):
    """The present text publication of a workspace. Generation 0: nothing was published yet, at no time."""

    id: UUID
    generation: int
    created_at: datetime | None


class PublishedVectors(Message):
    """The vectors over it; `complete` when every chunk has one. `created_at` None: there was nothing to make them of yet."""

    id: UUID
    generation: int
    text_publication: UUID
    embedding_space: str
    complete: bool
    created_at: datetime | None


class Publication(Message):
    """What readers of a workspace see."""

    workspace: UUID
    publish: PublishMode
    text: PublishedText
    vector: PublishedVectors | None
    catalog_revision: int
    corpus_fingerprint: str
    documents: int
    chunks: int


class PublicationList(Message):
    """One entry per workspace that is served, or has been indexed."""

    items: list[Publication]


# The model's view of the tool (ON-3, ON-5): it chooses the words, nothing else.
SEARCH = Query(
    "retrieval.search", SearchRequest, SearchReply, owner="retrieval", askers=("gateway", "agent"), timeout_seconds=SEARCH_SECONDS_MAX
)
RUN_CREATE = Query(
    "retrieval.run.create", CreateRun, Run, owner="retrieval", askers=("gateway",), timeout_seconds=SEARCH_SECONDS_MAX, idempotent=False
)
RUN_GET = Query("retrieval.run.get", RunRef, Run, owner="retrieval", askers=("gateway", "contexts"))
RUN_LIST = Query("retrieval.run.list", ListRuns, RunPage, owner="retrieval", askers=("gateway",))
STATUS = Query("retrieval.status", StatusRequest, Status, owner="retrieval", askers=("gateway",))
PUBLISH = Query(
    "retrieval.publication.publish", Publish, Publication, owner="retrieval", askers=("gateway",), timeout_seconds=PUBLISH_SECONDS_MAX
)
PUBLICATION_CONFIGURE = Query(
    "retrieval.publication.configure",
    ConfigurePublishing,
    Publication,
    owner="retrieval",
    askers=("gateway",),
    timeout_seconds=PUBLISH_SECONDS_MAX,
)
PUBLICATION_LIST = Query("retrieval.publication.list", PublicationRequest, PublicationList, owner="retrieval", askers=("gateway",))
