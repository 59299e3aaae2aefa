"""The registry of subjects: each declared once, served by its owner, and spelled nowhere else."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import shared.contracts
from shared.contracts.errors import STATUS, ErrorCode
from shared.contracts.subject import SERVICES, Event, Query

CONTRACTS = [importlib.import_module(f"shared.contracts.{module.name}") for module in pkgutil.iter_modules(shared.contracts.__path__)]

ROOT = Path(__file__).parents[2]
SUBJECT = re.compile(r"^[a-z][a-z_]*(\.[a-z][a-z_]*)*(\.\{[a-z_]+\})?$")
OWNERS = {*SERVICES, "index", "*"}


def sources() -> list[Path]:
    return [path for folder in ("services", "local", "shared") for path in (ROOT / folder).rglob("*.py")]


def test_every_subject_is_legal_unique_and_owned() -> None:
    subjects = [query.subject for query in Query.registry] + [event.template for event in Event.registry]
    assert len(set(subjects)) == len(subjects)
    for subject in subjects:
        assert SUBJECT.match(subject), subject
    assert {query.owner for query in Query.registry} | {event.owner for event in Event.registry} <= OWNERS
    for query in Query.registry:
        assert query.subject.split(".")[0] == query.owner


def test_every_query_is_served_in_its_owners_code() -> None:
    text = {
        owner: "".join(path.read_text() for path in sources() if owner in path.parts or (owner == "index" and "local" in path.parts))
        for owner in OWNERS
    }
    names = {id(value): name for module in CONTRACTS for name, value in vars(module).items() if isinstance(value, Query)}
    for query in Query.registry:
        if query.subject.endswith(".ping"):
            continue  # by the bus itself, for whatever it serves
        if query.subject.endswith(".health"):
            assert "health_routes(" in text[query.owner]
        else:
            assert re.search(rf"\b{names[id(query)]}\b", text[query.owner]), f"{query.subject} is served nowhere"


def test_no_subject_is_spelled_outside_its_declaration() -> None:
    prefixes = tuple({query.subject for query in Query.registry} | {event.prefix for event in Event.registry})
    for path in sources():
        if "contracts" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
                assert not node.value.startswith(prefixes) or " " in node.value, f"{path}:{node.lineno} spells {node.value!r}"


def test_every_error_code_has_one_status() -> None:
    assert set(STATUS) == set(ErrorCode)


@pytest.mark.parametrize("query", Query.registry, ids=lambda query: query.subject)
def test_every_message_round_trips_by_its_own_schema(query: Query) -> None:  # type: ignore[type-arg]
    for model in (query.request, query.reply):
        assert model.__doc__, model
        model.model_json_schema()
