"""Providers as data."""

import json
import re
from pathlib import Path

import pytest

from services.agent.chat_model import CompletionRequest
from services.agent.providers import Model, ProvidersFileError, Replay, load
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
    assert (other.base_url, model, other.timeouts.first_payload) == ("https://models.example/v1", "large", 5)
    assert other.model("small").reasoning_replay is Replay.REQUIRED
    assert other.api_key is not None
    assert other.api_key.get_secret_value() == "a secret"
    assert "a secret" not in repr(other)


@pytest.mark.parametrize(("name", "model"), [("nobody", None), (None, "none"), ("default", "large")])
def test_what_is_not_there_is_refused(name: str | None, model: str | None) -> None:
    with pytest.raises(ServiceError):
        load(settings()).choose(name, model)


RULES = """
[[provider]]
name = "mixed"
base_url = "https://models.example/v1"
models = [
    "plain",
    { name = "odd", tool_calling = false, reasoning_replay = "never", stream = false, extra_body = { effort = "low", n = 1 } },
]
stream_usage = false
[provider.extra_body]
effort = "high"
[provider.extra_body.thinking]
type = "enabled"
"""


def test_what_is_said_of_a_model_goes_before_what_is_said_of_its_provider(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(RULES)
    provider, name = load(settings(path), {}).choose("mixed", None)
    assert (name, provider.model_names) == ("plain", ["plain", "odd"])
    plain, odd = provider.model("plain"), provider.model("odd")
    assert (plain.tool_calling, plain.reasoning_replay, plain.stream, plain.stream_usage) == (True, Replay.KEPT, True, False)
    assert plain.extra_body == {"effort": "high", "thinking": {"type": "enabled"}}
    assert (odd.tool_calling, odd.reasoning_replay, odd.stream) == (False, Replay.NEVER, False)
    assert odd.extra_body == {"effort": "low", "n": 1, "thinking": {"type": "enabled"}}


def body(model: Model, tools: list[dict[str, object]]) -> dict[str, object]:
    return json.loads(CompletionRequest(model, [], tools).body())  # type: ignore[no-any-return]


def test_a_request_is_made_of_what_the_model_takes() -> None:  # infiniflow/ragflow#5912, can1357/oh-my-pi#886
    fields = {"name": "m", "tool_calling": True, "reasoning_replay": Replay.KEPT, "stream": True, "stream_usage": True}
    extra = {"thinking": {"type": "disabled"}, "parallel_tool_calls": False}
    model = Model(**fields, extra_body=extra)  # type: ignore[arg-type]
    asked = {"model": "m", "messages": [], "stream": True, "stream_options": {"include_usage": True}}
    assert body(model, []) == {**asked, "thinking": {"type": "disabled"}}
    assert body(model, [{"type": "function"}]) == {**asked, "tools": [{"type": "function"}], **extra}
    whole = model.model_copy(update={"stream": False, "extra_body": {}})
    assert body(whole, []) == {"model": "m", "messages": [], "stream": False}
    assert body(model.model_copy(update={"stream_usage": False, "extra_body": {}}), []) == {"model": "m", "messages": [], "stream": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not toml [", "is not TOML"),
        ('[[provider]]\nname = "x"', "base_url: Field required"),
        (GOOD.replace("https", "file"), "base_url"),
        (GOOD.replace("models.example", "user:secret@models.example"), "base_url"),
        (GOOD.replace("/v1/", "/v1?version=2"), "base_url"),
        (GOOD.replace("tool_calling", "tools"), "tools: Extra inputs"),
        (GOOD.replace("tool_calling = false", 'tool_calling = "no"'), "tool_calling"),
        (GOOD + GOOD, "Two providers have one name"),
        (GOOD.replace('"required"', '"sometimes"'), "'kept', 'required' or 'never'"),
        (GOOD.replace('"large"', '"small"'), "a model is named twice"),
        (GOOD.replace('"large"', '{ name = "large", speed = 1 }'), "models.1.speed"),
        (GOOD.replace('"large"', "7"), "models.1"),
        (GOOD.replace('"large"', '{ name = "large", extra_body = { messages = [] } }'), "it may not set messages"),
        (GOOD + "[provider.extra_body]\nstream = false\nmodel = 'x'", "it may not set model, stream"),
        (GOOD.replace("[[provider]]", "[provider]"), r"each must begin with \[\[provider"),
        (GOOD.replace("[[provider]]", "[[providers]]").replace("[provider.timeouts]", "[timeouts]"), "holds providers, timeouts"),
        ('provider = ["x"]', r"each must begin with \[\[provider"),
        (GOOD.replace('"OTHER_KEY"', "7"), "key_variable must be"),
        (GOOD.replace("key_variable", "api_key"), "holds a key; name the environment variable"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(text)
    with pytest.raises(ProvidersFileError, match=said) as refused:
        load(settings(path), {})
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "validation error" not in str(refused.value)


DOCUMENTED = Path(__file__).parents[3] / "docs" / "providers.md"


def test_every_documented_example_can_be_used(tmp_path: Path) -> None:
    examples = re.findall(r"^```toml\n(.*?)^```", DOCUMENTED.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    path = tmp_path / "providers.toml"
    path.write_text("".join(examples))
    providers = load(settings(path), {})
    assert [one.name for one in providers.all] == ["default", "deepseek", "openai", "qwen", "vllm", "ollama", "mistral", "gemini"]
    assert providers.choose("deepseek", None)[0].model("deepseek-v4-pro").reasoning_replay is Replay.REQUIRED


def test_an_address_of_a_model_that_is_none_is_said_in_one_line() -> None:
    with pytest.raises(ProvidersFileError, match="MODEL_BASE_URL cannot be used: base_url"):
        load(settings(base_url="127.0.0.1:8000/v1"))


def test_a_key_is_taken_without_the_line_end_that_files_leave_and_not_if_no_header_can_carry_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(GOOD)
    key = load(settings(path), {"OTHER_KEY": "a secret\n"}).choose("other", None)[0].api_key
    assert key is not None
    assert key.get_secret_value() == "a secret"
    with pytest.raises(ProvidersFileError, match="holds characters that no key has") as refused:
        load(settings(path), {"OTHER_KEY": "a\nsecret"})
    assert "secret" not in str(refused.value)
    load(settings(path), {})
    assert "OTHER_KEY is not set" in caplog.text


def test_without_any_provider_the_agent_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ProvidersFileError, match="MODEL_BASE_URL"):
        load(settings(base_url=None), {})
    with pytest.raises(ProvidersFileError, match="cannot be read"):
        load(settings(tmp_path / "absent.toml"), {})
