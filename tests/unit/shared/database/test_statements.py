"""What a trace says of an SQL statement (OP-1)."""

import ast
import re
from pathlib import Path

import pytest

from shared.database.statements import read

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT 1", ("SELECT", "")),
        ("BEGIN;", ("BEGIN", "")),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;", ("BEGIN", "")),
        ("SELECT * FROM turns WHERE id = $1 FOR UPDATE", ("SELECT", "turns")),
        ("SELECT pg_advisory_xact_lock(hashtext('migrate ' || $1))", ("SELECT", "")),
        ("UPDATE notes SET title = $1", ("UPDATE", "notes")),
        ("INSERT INTO runs (id) VALUES ($1) ON CONFLICT DO UPDATE SET id = $1", ("INSERT", "runs")),
        ("INSERT INTO runs(id) SELECT id FROM other", ("INSERT", "runs")),
        ("DELETE FROM agents WHERE id = $1", ("DELETE", "agents")),
        ("SELECT extract(epoch FROM now() - since) FROM unnest($1::uuid[]) JOIN held USING (id)", ("SELECT", "held")),
        ("WITH RECURSIVE path AS (SELECT * FROM messages), last AS (SELECT 1 FROM path) SELECT * FROM last", ("SELECT", "messages")),
        ("WITH one AS MATERIALIZED (SELECT id FROM conversations FOR UPDATE) UPDATE turns SET x = 1 FROM one", ("UPDATE", "turns")),
        ("WITH made AS (INSERT INTO messages (id) VALUES ($1)) SELECT 1", ("INSERT", "messages")),
        ("COPY INTO chunks", ("COPY", "chunks")),
        ("", ("", "")),
    ],
)  # fmt: skip
def test_a_statement_is_named_by_what_it_does_and_its_first_table(query: str, name: tuple[str, str]) -> None:
    assert read(query) == name


def test_every_statement_of_the_project_has_a_short_name_and_there_are_few() -> None:
    names = set()
    for folder in ("services", "shared", "local"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
                if re.match(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH)\s", text):
                    names.add(read(text))
    assert 30 < len(names) < 200
    assert all(re.fullmatch("[A-Z]+", operation) and re.fullmatch("[a-z_]*", table) for operation, table in names), names
