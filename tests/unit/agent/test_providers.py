"""Providers as data."""

from pathlib import Path

import pytest

from services.agent.providers import ProvidersFileError, Replay, load
from services.agent.settings import AgentSettings
from shared.contracts.errors import ServiceError

GOOD = """
[[provider]]
name = "other"
base_url = "https://models.example/v1/"
key_variable = "OTHER_KEY"
models = ["small", "large"]
tool_calling = false
reasoning_replay = "required"
[provider.timeouts]
first_payload = 5
"""


def settings(path: Path | None = None, base_url: str | None = "http://127.0.0.1:1/v1/") -> AgentSettings:
    return AgentSettings(MODEL_BASE_URL=base_url, MODEL_NAME="m", MARGINALIA_PROVIDERS=path)


def test_the_default_comes_first_and_the_file_adds_more(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(GOOD)
    providers = load(settings(path), {"OTHER_KEY": "a secret"})
    assert [provider.name for provider in providers.all] == ["default", "other"]
    assert providers.choose(None, None)[1] == "m"
    other, model = providers.choose("other", "large")
    assert (other.base_url, model, other.reasoning_replay, other.timeouts.first_payload) == (
        "https://models.example/v1",
        "large",
        Replay.REQUIRED,
        5,
    )
    assert other.api_key is not None
    assert other.api_key.get_secret_value() == "a secret"
    assert "a secret" not in repr(other)


@pytest.mark.parametrize(("name", "model"), [("nobody", None), (None, "none"), ("default", "large")])
def test_what_is_not_there_is_refused(name: str | None, model: str | None) -> None:
    with pytest.raises(ServiceError):
        load(settings()).choose(name, model)


@pytest.mark.parametrize(
    "text",
    ["not toml [", '[[provider]]\nname = "x"', GOOD.replace("https", "file"), GOOD.replace("tool_calling", "tools"), GOOD + GOOD],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(text)
    with pytest.raises(ProvidersFileError):
        load(settings(path), {})


def test_without_any_provider_the_agent_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ProvidersFileError, match="MODEL_BASE_URL"):
        load(settings(base_url=None), {})
    with pytest.raises(ProvidersFileError, match="cannot be read"):
        load(settings(tmp_path / "absent.toml"), {})
