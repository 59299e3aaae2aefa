"""The one error that crosses services, and its codes.

    ServiceError            a code, a sentence for a person, and facts about it
    ├── raised by a handler → reply with the header `Error-Code` and the body `ErrorBody`
    └── raised by `Client.ask` when such a reply arrives, or when none could be had

A code is a stable slug and says by itself what the HTTP status is: `STATUS` is the one table.
"""

from enum import StrEnum
from typing import Any, Self

from shared.contracts.subject import Message


class ErrorCode(StrEnum):
    """Every slug that a client or a service can meet in an error."""

    # of requests in general
    MALFORMED = "malformed"
    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    PRECONDITION_REQUIRED = "precondition_required"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_ACCEPTABLE = "not_acceptable"
    TOO_LARGE = "too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    RATE_LIMITED = "rate_limited"
    REQUEST_TIMEOUT = "request_timeout"
    # of the road between services
    CANCELLED = "cancelled"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    UNAVAILABLE = "service_unavailable"
    INTERNAL = "internal"
    # accounts
    ORIGIN_REJECTED = "origin_rejected"
    CSRF_REJECTED = "csrf_rejected"
    ACCOUNT_NOT_FOUND = "account_not_found"
    USERNAME_TAKEN = "username_taken"
    TOKEN_NOT_FOUND = "token_not_found"  # noqa: S105
    # chat
    TURN_NOT_FOUND = "turn_not_found"
    CONVERSATION_NOT_FOUND = "conversation_not_found"
    MESSAGE_NOT_FOUND = "message_not_found"
    CLIENT_MESSAGE_ID_REUSED = "client_message_id_reused"
    UNKNOWN_PROVIDER = "unknown_provider"
    UNKNOWN_MODEL = "unknown_model"
    LAST_EVENT_ID_INVALID = "last_event_id_invalid"
    TOOL_CALL_NOT_FOUND = "tool_call_not_found"
    APPROVAL_NOT_PENDING = "approval_not_pending"
    APPROVAL_STALE = "approval_stale"
    APPROVAL_DECIDED = "approval_decided"
    # chat by the protocol of others
    MODEL_NOT_FOUND = "model_not_found"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    # of a turn that failed: the event `Error` has them, and a request that waits for the whole answer
    PROVIDER_UNREACHABLE = "provider_unreachable"
    PROVIDER_REFUSED = "provider_refused"
    PROVIDER_RATE_LIMITED = "provider_rate_limited"
    PROVIDER_TIMEOUT = "provider_timeout"
    PROVIDER_STREAM_BROKEN = "provider_stream_broken"
    PROVIDER_MALFORMED = "provider_malformed"
    CONTEXT_TOO_LONG = "context_too_long"
    EMPTY_ANSWER = "empty_answer"
    AGENT_STOPPED = "agent_stopped"
    AGENT_LOST = "agent_lost"
    # notes
    WORKSPACE_NOT_FOUND = "workspace_not_found"
    WORKSPACE_EXISTS = "workspace_exists"
    NOTE_NOT_FOUND = "note_not_found"
    NOTE_UNREADABLE = "note_unreadable"
    NOTE_EXISTS = "note_exists"
    NOTE_STALE = "note_stale"
    NOTE_BUSY = "note_busy"
    MATCH_NOT_FOUND = "match_not_found"
    MATCH_NOT_UNIQUE = "match_not_unique"
    PATH_INVALID = "path_invalid"
    REFERENCE_MISSING = "reference_missing"
    VAULT_UNAVAILABLE = "vault_unavailable"
    VAULT_READ_ONLY = "vault_read_only"
    STORAGE_FULL = "storage_full"
    # prepared contexts
    CONTEXT_NOT_FOUND = "context_not_found"
    EVIDENCE_STALE = "evidence_stale"
    SESSION_REQUIRED = "session_required"
    # retrieval
    RUN_NOT_FOUND = "run_not_found"
    RETRIEVAL_UNAVAILABLE = "retrieval_unavailable"


STATUS: dict[ErrorCode, int] = {
    ErrorCode.MALFORMED: 400,
    ErrorCode.INVALID: 422,
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.PRECONDITION_REQUIRED: 428,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.NOT_ACCEPTABLE: 406,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: 415,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.REQUEST_TIMEOUT: 408,
    ErrorCode.CANCELLED: 409,
    ErrorCode.DEADLINE_EXCEEDED: 503,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
    ErrorCode.ORIGIN_REJECTED: 403,
    ErrorCode.CSRF_REJECTED: 403,
    ErrorCode.ACCOUNT_NOT_FOUND: 404,
    ErrorCode.USERNAME_TAKEN: 409,
    ErrorCode.TOKEN_NOT_FOUND: 404,
    ErrorCode.TURN_NOT_FOUND: 404,
    ErrorCode.CONVERSATION_NOT_FOUND: 404,
    ErrorCode.MESSAGE_NOT_FOUND: 404,
    ErrorCode.CLIENT_MESSAGE_ID_REUSED: 409,
    ErrorCode.UNKNOWN_PROVIDER: 422,
    ErrorCode.UNKNOWN_MODEL: 422,
    ErrorCode.LAST_EVENT_ID_INVALID: 400,
    ErrorCode.TOOL_CALL_NOT_FOUND: 404,
    ErrorCode.APPROVAL_NOT_PENDING: 409,
    ErrorCode.APPROVAL_STALE: 409,
    ErrorCode.APPROVAL_DECIDED: 409,
    ErrorCode.MODEL_NOT_FOUND: 404,
    ErrorCode.UNSUPPORTED_PARAMETER: 400,
    ErrorCode.PROVIDER_UNREACHABLE: 502,
    ErrorCode.PROVIDER_REFUSED: 502,
    ErrorCode.PROVIDER_RATE_LIMITED: 429,
    ErrorCode.PROVIDER_TIMEOUT: 504,
    ErrorCode.PROVIDER_STREAM_BROKEN: 502,
    ErrorCode.PROVIDER_MALFORMED: 502,
    ErrorCode.CONTEXT_TOO_LONG: 400,
    ErrorCode.EMPTY_ANSWER: 502,
    ErrorCode.AGENT_STOPPED: 503,
    ErrorCode.AGENT_LOST: 503,
    ErrorCode.WORKSPACE_NOT_FOUND: 404,
    ErrorCode.WORKSPACE_EXISTS: 409,
    ErrorCode.NOTE_NOT_FOUND: 404,
    ErrorCode.NOTE_UNREADABLE: 422,
    ErrorCode.NOTE_EXISTS: 409,
    ErrorCode.NOTE_STALE: 409,
    ErrorCode.NOTE_BUSY: 503,
    ErrorCode.MATCH_NOT_FOUND: 409,
    ErrorCode.MATCH_NOT_UNIQUE: 409,
    ErrorCode.PATH_INVALID: 400,
    ErrorCode.REFERENCE_MISSING: 409,
    ErrorCode.VAULT_UNAVAILABLE: 503,
    ErrorCode.VAULT_READ_ONLY: 503,
    ErrorCode.STORAGE_FULL: 507,
    ErrorCode.CONTEXT_NOT_FOUND: 404,
    ErrorCode.EVIDENCE_STALE: 409,
    ErrorCode.SESSION_REQUIRED: 403,
    ErrorCode.RUN_NOT_FOUND: 404,
    ErrorCode.RETRIEVAL_UNAVAILABLE: 503,
}


class ErrorBody(Message):
    """The body of an error reply. `detail` is a sentence a person can act on; `extra` holds facts such as `current_hash`."""

    code: ErrorCode
    detail: str
    extra: dict[str, Any] = {}

    @classmethod
    def of(cls, error: "ServiceError") -> Self:
        """What is said of an error."""
        return cls(code=error.code, detail=error.detail, extra=error.extra)

    def error(self) -> "ServiceError":
        """The error of which this is said."""
        return ServiceError(self.code, self.detail, **self.extra)


class ServiceError(Exception):
    """A refusal or failure with a stable code; see the module's picture."""

    def __init__(self, code: ErrorCode, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.extra = extra

    @property
    def status(self) -> int:
        """The HTTP status this error has at the edge."""
        return STATUS[self.code]

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in (408, 429, 503)
