from collections.abc import Iterator
from pathlib import Path

import pytest

from local.home import Home
from local.settings import LocalSettings
from local.stack import Stack, base_environment, compose

EXTERNAL = {"NATS_URL": "nats://n", "DATABASE_URL": "postgresql://d", "QDRANT_URL": "http://q"}
PROVIDERS = {
    "MODEL_BASE_URL": "http://m/v1",
    "MODEL_NAME": "m-1",
    "MODEL_API_KEY": "model-key",
    "EMBEDDING_BASE_URL": "http://e/v1",
    "EMBEDDING_API_KEY": "embedding-key",
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    opened = Home.open(tmp_path / "home")
    yield opened
    opened.close()


async def composed(home: Home, **variables: str) -> Stack:
    return await compose(LocalSettings.model_validate(variables), home, (Path("/notes"),), "admin-secret")


def names(stack: Stack) -> set[str]:
    return {program.name for program in (*stack.stores, *stack.models, *stack.services)}


async def test_external_services_are_used_instead_of_embedded_ones(home: Home) -> None:
    stack = await composed(home, **EXTERNAL, **PROVIDERS)
    assert names(stack) == {"notes", "retrieval", "contexts", "agent", "gateway"}
    assert stack.endpoints == {"gateway": "http://127.0.0.1:8080", "nats": "nats://n", "postgres": "postgresql://d"}
    agent = next(program.environment for program in stack.services if program.name == "agent")
    assert (agent["MODEL_BASE_URL"], agent["MODEL_NAME"], agent["NATS_URL"]) == ("http://m/v1", "m-1", "nats://n")


async def test_without_them_everything_is_embedded(home: Home) -> None:
    stack = await composed(home)
    assert names(stack) >= {"nats", "postgres", "embedder", "model", "index"}
    agent = next(program.environment for program in stack.services if program.name == "agent")
    assert agent["MODEL_BASE_URL"] == stack.endpoints["model"]
    assert (agent["MODEL_NAME"], agent["MODEL_TOOL_CALLING"]) == ("marginalia-demo", "true")


async def test_a_secret_goes_only_to_the_service_that_uses_it(home: Home) -> None:
    stack = await composed(home, **EXTERNAL, **PROVIDERS)
    holders = {
        secret: {program.name for program in stack.services if secret in program.environment.values()}
        for secret in ("model-key", "embedding-key", "admin-secret")
    }
    assert holders == {"model-key": {"agent"}, "embedding-key": {"retrieval"}, "admin-secret": {"gateway"}}
    command_lines = " ".join(word for program in stack.services for word in program.command)
    assert "secret" not in command_lines
    assert "-key" not in command_lines


async def test_further_providers_keys_reach_the_agent_alone(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "providers.toml"
    file.write_text('[[provider]]\nname = "a"\nkey_variable = "A_KEY"\n[[provider]]\nname = "b"\nkey_variable = "B_KEY"\n')
    monkeypatch.setenv("MARGINALIA_PROVIDERS", str(file))
    monkeypatch.setenv("A_KEY", "of-a")
    settings = LocalSettings()
    stack = await compose(settings, home, (), "admin-secret")
    assert {program.name for program in stack.services if program.environment.get("A_KEY") == "of-a"} == {"agent"}
    assert "A_KEY" not in base_environment(settings, home)


async def test_the_stores_keep_their_addresses_over_a_restart(home: Home) -> None:
    first = await composed(home)
    home.write_endpoints(first.endpoints)
    assert (await composed(home)).endpoints == first.endpoints
