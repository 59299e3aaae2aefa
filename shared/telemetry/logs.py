"""Log lines: to standard error, each with the id of its trace.

A log may be read by people who may not read the notes, so an exception is written with its class, its places in the code and its causes,
but with its message only where that is known to quote no text: PostgreSQL and pydantic repeat the values that they refuse (OP-1).
"""

import logging
import sys
import traceback

import asyncpg
from nats.errors import Error as NatsError
from opentelemetry import trace

from shared.contracts.errors import ServiceError

# Their messages are of connections, files, rights, tables' names and time; a `ServiceError`'s sentence names notes, but quotes none.
_HARMLESS = (
    OSError,
    NatsError,
    ServiceError,
    asyncpg.PostgresConnectionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.TooManyConnectionsError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.InvalidSchemaNameError,
)
_CHATTY = ("httpx", "httpcore", "faststream", "uvicorn.access")


class _TraceIds(logging.Filter):
    """Puts the current trace id into each log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = trace.get_current_span().get_span_context()
        record.trace_id = format(context.trace_id, "032x") if context.is_valid else "-"
        return True


class _Discreet(logging.Formatter):
    """Writes tracebacks without what exceptions say."""

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        error = ei[1] if isinstance(ei, tuple) else None
        return "\n".join(_told(error)) if isinstance(error, BaseException) else ""


def said(error: BaseException) -> str:
    """An exception in a log line: its class, and its message where that quotes no text."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, _HARMLESS) else name


def _told(error: BaseException) -> list[str]:
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = [*_told(before), "", "While that was handled, or because of it:", ""] if before is not None else []
    lines += ["Traceback (most recent call last):", *"".join(traceback.format_tb(error.__traceback__)).rstrip("\n").split("\n")]
    lines.append(said(error))
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            lines += ["  " + line for line in _told(one)]
    return lines


def write_to_stderr() -> None:
    """Have this process's log lines written."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_TraceIds())
    handler.setFormatter(_Discreet("%(asctime)s %(levelname)s %(name)s trace=%(trace_id)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
