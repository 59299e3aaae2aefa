"""Who asks, publishes and hears what is declared with each subject, and is what the code does: permissions are made from it."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import shared.contracts
from shared.contracts.subject import EVERYONE, SERVICES, Event, Query
from shared.messaging import permissions

CONTRACTS = {
    module.name: importlib.import_module(f"shared.contracts.{module.name}") for module in pkgutil.iter_modules(shared.contracts.__path__)
}
ROOT = Path(__file__).parents[2]


def names_of_contracts(tree: ast.AST) -> dict[str, object]:
    """What a module's imports bind of the contracts."""
    found: dict[str, object] = {}
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module):
        for alias in node.names:
            bound = alias.asname or alias.name
            if node.module == "shared.contracts":
                found[bound] = CONTRACTS[alias.name]
            elif node.module.startswith("shared.contracts."):
                found[bound] = getattr(CONTRACTS[node.module.rsplit(".", 1)[1]], alias.name)
    return found


def mentioned(path: Path) -> Iterator[tuple[Query | Event, bool]]:  # type: ignore[type-arg]
    """Each query and event that a module names, and whether it stands in a table of routes there."""
    tree = ast.parse(path.read_text())
    names = names_of_contracts(tree)

    def meant(node: ast.AST) -> object:
        if isinstance(node, ast.Name):
            return names.get(node.id)
        if isinstance(node, ast.Attribute) and (module := meant(node.value)) in CONTRACTS.values():
            return getattr(module, node.attr, None)
        return None

    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Route")
    routed = {id(call.args[0]) for call in calls}
    for node in ast.walk(tree):
        if isinstance(found := meant(node), Query | Event):
            yield found, id(node) in routed


def uses() -> tuple[dict[str, set[str]], dict[str, set[str]], dict[str, set[str]]]:
    """By subject: who serves, who asks, who has to do with the event."""
    served: dict[str, set[str]] = {}
    asked: dict[str, set[str]] = {}
    events: dict[str, set[str]] = {}
    folders = {name: ROOT / "services" / name for name in SERVICES} | {"index": ROOT / "local"}
    for name, folder in folders.items():
        for path in (path for path in folder.rglob("*.py") if "node_modules" not in path.parts):
            for found, in_routes in mentioned(path):
                if isinstance(found, Event):
                    events.setdefault(found.template, set()).add(name)
                else:
                    (served if in_routes else asked).setdefault(found.subject, set()).add(name)
    return served, asked, events


SERVED, ASKED, EVENTS = uses()


@pytest.mark.parametrize("query", Query.registry, ids=lambda query: query.subject)
def test_the_declared_askers_of_a_query_are_those_that_ask(query: Query) -> None:  # type: ignore[type-arg]
    if query.subject.endswith(".ping"):
        assert query.askers == ()  # whoever asks the owner anything, and the owner itself
    elif query.subject.endswith(".health"):
        assert query.askers == (() if query.owner == "gateway" else ("gateway",))
    else:
        assert set(query.askers) == ASKED.get(query.subject, set())
        assert SERVED[query.subject] == {query.owner}


@pytest.mark.parametrize("event", Event.registry, ids=lambda event: event.template)
def test_the_declared_publisher_and_hearers_of_an_event_are_those_that_name_it(event: Event) -> None:
    if event.listeners == EVERYONE:
        assert EVENTS.get(event.template, set()) == set()  # the road itself does that, for everyone
    else:
        assert {event.owner, *event.listeners, *event.consumers} == EVENTS[event.template]


def test_a_consumer_is_named_like_its_service() -> None:
    from services.retrieval import feed

    assert [event.consumers for event in Event.registry if event.consumers] == [(feed.DURABLE,)]


def test_no_permission_is_wider_than_one_family() -> None:
    for user in permissions.USERS:
        granted = permissions.of(user)
        for subject in (*granted.publish, *granted.subscribe):
            assert "*" not in subject, subject
            fixed = subject.removesuffix(".>")
            assert ">" not in fixed, subject
            assert fixed not in ("_INBOX", "$JS", "$JS.API", "$JS.ACK", "$SYS"), subject
