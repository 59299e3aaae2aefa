"""A span for each SQL statement within a trace, named by what the statement does and the first table that it changes, or reads.

Neither its text nor its values are kept: the name is read from the text, which is one of a fixed number of constants (OP-1).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import asyncpg

from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

# Table and keyword are told apart by case, as everywhere in this project's SQL; a function has a bracket behind its name.
_CHANGE = re.compile(r"\b(INSERT)\s+INTO\s+([a-z_]+)|\b(UPDATE)\s+([a-z_]+)|\b(DELETE)\s+FROM\s+([a-z_]+)")
_SOURCE = re.compile(r"\b(?:FROM|JOIN|INTO)\s+([a-z_]+)(?![a-z_])(?!\s*\()")
_NAMED_PART = re.compile(r"(?:\bWITH|\bRECURSIVE|,)\s+([a-z_]+)(?:\s*\([^()]*\))?\s+AS\s+(?:(?:NOT\s+)?MATERIALIZED\s+)?\(")


class TracedConnection(asyncpg.Connection):  # generic in its stubs only
    """A connection whose statements are spans of the trace that they are made in. Outside of traces (beats, polling) there are none."""

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        """As asyncpg's."""
        with statement_span(self, query):
            return await super().execute(query, *args, **options)

    async def executemany(self, command: str, args: Any, **options: Any) -> None:
        """As asyncpg's."""
        with statement_span(self, command):
            await super().executemany(command, args, **options)

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        """As asyncpg's."""
        with statement_span(self, query):
            return await super().fetch(query, *args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        """As asyncpg's."""
        with statement_span(self, query):
            return await super().fetchval(query, *args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        """As asyncpg's."""
        with statement_span(self, query):
            return await super().fetchrow(query, *args, **options)

    async def copy_records_to_table(self, table_name: str, **options: Any) -> str:
        """As asyncpg's."""
        with statement_span(self, f"COPY INTO {table_name}"):
            return await super().copy_records_to_table(table_name, **options)


@contextmanager
def statement_span(connection: Any, query: str) -> Iterator[None]:
    """A span around a statement, in a trace."""
    if not tracing.current().is_recording():
        yield
        return
    operation, table = read(query)
    told = {
        words.DB_SYSTEM: "postgresql",
        words.DB_NAMESPACE: connection.get_settings().application_name,
        words.DB_OPERATION: operation,
    }
    with tracing.span(words.STATEMENT, told, summary=f"{operation} {table}" if table else operation) as span:
        try:
            yield
        except asyncpg.PostgresError as error:
            if error.sqlstate is not None:
                span.set_attribute(words.DB_STATUS, error.sqlstate)
            raise


@lru_cache(maxsize=1024)
def read(query: str) -> tuple[str, str]:
    """What a statement does, and the first table that it changes, or reads; "" where it names none."""
    parts = query.split(maxsplit=1)
    operation = parts[0].rstrip(";").upper() if parts else ""
    if operation in ("WITH", "INSERT", "UPDATE", "DELETE") and (change := _CHANGE.search(query)) is not None:
        operation, table = filter(None, change.groups())
        return operation, table
    named_parts = set(_NAMED_PART.findall(query))
    table = next((table for table in _SOURCE.findall(query) if table not in named_parts), "")
    return "SELECT" if operation == "WITH" else operation, table
