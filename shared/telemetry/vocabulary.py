"""Every name in a trace, said once: what spans are called, what may stand on them, what it means.

The conventions of OpenTelemetry for HTTP, messaging, databases and generative AI are followed; what they have no word for begins with
`marginalia.`. Names and attributes that dashboards group by have few values: an id is an attribute, never part of a name. No attribute
holds text of a chat or a note (OP-1). `docs/reference/traces.md` is made from this module.
"""

from dataclasses import dataclass
from typing import ClassVar

from opentelemetry.trace import SpanKind

# Attributes

ATTRIBUTES: dict[str, str] = {}


def _attribute(key: str, meaning: str) -> str:
    ATTRIBUTES[key] = meaning
    return key


ERROR_TYPE = _attribute("error.type", "An error code of ours, `cancelled`, or the name of an exception's class. Absent where it went well.")

HTTP_METHOD = _attribute("http.request.method", "Of the methods that HTTP defines; else `_OTHER`.")
HTTP_ROUTE = _attribute("http.route", "The route's template, or `unmatched`.")
HTTP_STATUS = _attribute("http.response.status_code", "Number.")

MESSAGING_SYSTEM = _attribute("messaging.system", "`nats`.")
MESSAGING_DESTINATION = _attribute("messaging.destination.name", "The subject; none of them has an id in it.")
MESSAGING_OPERATION_NAME = _attribute("messaging.operation.name", "`send` or `process`.")
MESSAGING_OPERATION_TYPE = _attribute("messaging.operation.type", "`send` or `process`.")
MESSAGING_GROUP = _attribute("messaging.consumer.group.name", "The queue group: the answering service.")
MESSAGING_BODY_SIZE = _attribute("messaging.message.body.size", "Bytes of the question.")
QUEUE_DEPTH = _attribute(
    "marginalia.queue.depth", "How many questions of the same subject waited in this process when work on this one began."
)

GEN_AI_OPERATION = _attribute("gen_ai.operation.name", "`invoke_agent`, `chat`, `execute_tool`, `retrieval`, `embeddings`.")
GEN_AI_AGENT = _attribute("gen_ai.agent.name", "`marginalia`.")
GEN_AI_CONVERSATION = _attribute("gen_ai.conversation.id", "The conversation's id.")
GEN_AI_PROVIDER = _attribute("gen_ai.provider.name", "The provider's name in the settings.")
GEN_AI_MODEL = _attribute("gen_ai.request.model", "The model that was asked for.")
GEN_AI_STREAM = _attribute("gen_ai.request.stream", "Whether the answer was asked for in pieces.")
GEN_AI_FINISH_REASONS = _attribute("gen_ai.response.finish_reasons", "Why the model ended; a list of one.")
GEN_AI_FIRST_CHUNK = _attribute("gen_ai.response.time_to_first_chunk", "Seconds from the request to the first text, thought or call.")
GEN_AI_INPUT_TOKENS = _attribute("gen_ai.usage.input_tokens", "As the provider counted, those from its cache included.")
GEN_AI_OUTPUT_TOKENS = _attribute("gen_ai.usage.output_tokens", "As the provider counted, those of thinking included.")
GEN_AI_CACHED_TOKENS = _attribute("gen_ai.usage.cache_read.input_tokens", "Input that came from the provider's cache.")
GEN_AI_REASONING_TOKENS = _attribute("gen_ai.usage.reasoning.output_tokens", "Output that was thinking.")
GEN_AI_TOOL = _attribute("gen_ai.tool.name", "One of our tools, else `unknown`: a model may call what there is not.")
GEN_AI_TOOL_TYPE = _attribute("gen_ai.tool.type", "`datastore` for the search, else `function`.")
GEN_AI_TOP_K = _attribute("gen_ai.retrieval.top_k", "How many passages, or notes, were asked for at most.")
SERVER_ADDRESS = _attribute("server.address", "The host that was asked.")
SERVER_PORT = _attribute("server.port", "Its port.")

DB_SYSTEM = _attribute("db.system.name", "`postgresql` or `qdrant`.")
DB_NAMESPACE = _attribute("db.namespace", "The service's schema.")
DB_COLLECTION = _attribute("db.collection.name", "The collection of points.")
DB_OPERATION = _attribute("db.operation.name", "`SELECT`, `INSERT`, …; of Qdrant `search`, `upsert`, …")
DB_STATUS = _attribute("db.response.status_code", "PostgreSQL's SQLSTATE, where it refused.")

TURN_ID = _attribute("marginalia.turn.id", "The turn's id.")
TURN_ATTEMPT = _attribute(
    "marginalia.turn.attempt", "1, and one more each time that the turn is gone on with, by another agent or after it waited."
)
TURN_STATUS = _attribute(
    "marginalia.turn.status",
    "`completed`, `failed`, `cancelled`, `limit_reached`; of an attempt that was not the last `suspended`, `handed_over`, `superseded`.",
)
TURN_ROUNDS = _attribute("marginalia.turn.rounds", "Requests to the model in the whole turn, on the attempt that ended it.")
TURN_FIRST_TOKEN = _attribute("marginalia.turn.time_to_first_token", "Seconds from the turn's beginning to the first text of its answer.")
CANCEL_REASON = _attribute(
    "marginalia.cancel.reason", "`requested` (by the user), `disconnect`, `caller_gone`, `deadline`, `shutdown`, `superseded`, or `other`."
)
ROUND = _attribute("marginalia.round", "The round of its turn, from 1.")
HITS = _attribute("marginalia.hits", "How many passages, or notes, were found.")
SEARCH_MODE = _attribute("marginalia.mode", "`keyword`, `keyword_chunks`, `vector`, `hybrid`.")
DEGRADED = _attribute("marginalia.degraded", "Whether vectors, or the engine, took no part though they were wanted.")
INPUTS = _attribute("marginalia.inputs", "How many texts were embedded.")
INDEX_NOTES = _attribute("marginalia.index.notes", "How many notes were looked at.")
INDEX_FAILED = _attribute("marginalia.index.failed", "How many of them could not be read just now, and are tried again.")
INDEX_PENDING = _attribute("marginalia.index.pending", "How many notes this process knows to differ from what can be found, afterwards.")

# Events


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event on a span, with what may stand on it."""

    name: str
    meaning: str
    attributes: tuple[str, ...]


_SEARCH_FACTS = ("duration_ms",)
RETRIEVAL_COMPLETED = SpanEvent(
    "chat.retrieval.completed", "A search that the model asked for was answered (ON-14).", ("round", "hits", *_SEARCH_FACTS)
)
RETRIEVAL_FAILED = SpanEvent("chat.retrieval.failed", "It was not (ON-14).", ("round", ERROR_TYPE, *_SEARCH_FACTS))
RUN_COMPLETED = SpanEvent("retrieval.run.completed", "A stored run was made.", ("mode", "hits", "status", *_SEARCH_FACTS))
RUN_FAILED = SpanEvent("retrieval.run.failed", "Its search failed.", ("mode", ERROR_TYPE, *_SEARCH_FACTS))

# Spans


@dataclass(frozen=True, slots=True)
class SpanType:
    """A kind of span. `template` is its name, with what varies in braces."""

    template: str
    kind: SpanKind
    made_by: str
    meaning: str
    attributes: tuple[str, ...]
    events: tuple[SpanEvent, ...] = ()
    registry: ClassVar[list["SpanType"]] = []

    def __post_init__(self) -> None:
        SpanType.registry.append(self)

    def named(self, **parts: str) -> str:
        """The name of one such span."""
        return self.template.format(**parts)


REQUEST = SpanType(
    "{method} {route}",
    SpanKind.SERVER,
    "gateway",
    "A request over HTTP, until its response, which may be a stream, has ended.",
    (HTTP_METHOD, HTTP_ROUTE, HTTP_STATUS, ERROR_TYPE),
)
SEND = SpanType(
    "send {subject}",
    SpanKind.CLIENT,
    "whoever asks",
    "A question to another service, until its answer is there.",
    (MESSAGING_SYSTEM, MESSAGING_DESTINATION, MESSAGING_OPERATION_NAME, MESSAGING_OPERATION_TYPE, MESSAGING_BODY_SIZE, ERROR_TYPE),
)
PROCESS = SpanType(
    "process {subject}",
    SpanKind.CONSUMER,
    "whoever answers",
    "The work on a question, without what it waited before; `send` less `process` is the way and the queue.",
    (MESSAGING_SYSTEM, MESSAGING_DESTINATION, MESSAGING_OPERATION_NAME, MESSAGING_OPERATION_TYPE, MESSAGING_GROUP, QUEUE_DEPTH, ERROR_TYPE),
    (RUN_COMPLETED, RUN_FAILED),
)
TURN = SpanType(
    "invoke_agent marginalia",
    SpanKind.INTERNAL,
    "agent",
    "An attempt at a turn. One that goes on with a turn is in the same trace, and is linked to the request that let it go on.",
    (
        GEN_AI_OPERATION, GEN_AI_AGENT, GEN_AI_CONVERSATION, TURN_ID, TURN_ATTEMPT, TURN_STATUS, TURN_ROUNDS, TURN_FIRST_TOKEN,
        CANCEL_REASON, ERROR_TYPE,
    ),
)  # fmt: skip
CHAT = SpanType(
    "chat {model}",
    SpanKind.CLIENT,
    "agent",
    "A request to a provider; one that is tried again is another span.",
    (
        GEN_AI_OPERATION, GEN_AI_PROVIDER, GEN_AI_MODEL, GEN_AI_STREAM, GEN_AI_FINISH_REASONS, GEN_AI_FIRST_CHUNK, GEN_AI_INPUT_TOKENS,
        GEN_AI_OUTPUT_TOKENS, GEN_AI_CACHED_TOKENS, GEN_AI_REASONING_TOKENS, SERVER_ADDRESS, SERVER_PORT, ERROR_TYPE,
    ),
)  # fmt: skip
TOOL = SpanType(
    "execute_tool {tool}",
    SpanKind.INTERNAL,
    "agent",
    "A tool call, without a wait for the user's consent.",
    (GEN_AI_OPERATION, GEN_AI_TOOL, GEN_AI_TOOL_TYPE, ROUND, HITS, ERROR_TYPE),
    (RETRIEVAL_COMPLETED, RETRIEVAL_FAILED),
)
RETRIEVAL = SpanType(
    "retrieval",
    SpanKind.INTERNAL,
    "retrieval",
    "A search for passages or notes.",
    (GEN_AI_OPERATION, GEN_AI_TOP_K, SEARCH_MODE, HITS, DEGRADED, ERROR_TYPE),
)
EMBEDDINGS = SpanType(
    "embeddings {model}",
    SpanKind.CLIENT,
    "retrieval",
    "A request to the embedding model.",
    (GEN_AI_OPERATION, GEN_AI_MODEL, INPUTS, SERVER_ADDRESS, SERVER_PORT, ERROR_TYPE),
)
INDEXING = SpanType(
    "index notes",
    SpanKind.INTERNAL,
    "retrieval",
    "A batch of notes that changed is taken in, linked to the requests that wrote them. What it asks of others is not traced: there may be "
    "thousands.",
    (INDEX_NOTES, INDEX_FAILED, INDEX_PENDING, ERROR_TYPE),
)
STATEMENT = SpanType(
    "{summary}",
    SpanKind.CLIENT,
    "every service with tables",
    "An SQL statement in a trace, named by what it does and the first table that it changes, or reads; neither text nor values are kept.",
    (DB_SYSTEM, DB_NAMESPACE, DB_OPERATION, DB_STATUS, ERROR_TYPE),
)
POINTS = SpanType(
    "{operation} points",
    SpanKind.CLIENT,
    "retrieval, or the bundled engine",
    "Work of the Qdrant server, or of the bundled engine.",
    (DB_SYSTEM, DB_COLLECTION, DB_OPERATION, ERROR_TYPE),
)
