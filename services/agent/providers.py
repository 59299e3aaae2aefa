"""The providers as data: who they are, what their models can do, how long they may take.

More providers come from a TOML file (docs/providers.md has examples of well-known ones):

    [[provider]]
    name = "deepseek"
    base_url = "https://api.example.com/v1"
    key_variable = "EXAMPLE_API_KEY"      # the environment variable that holds the key, or, with `_FILE` behind it, names its file
    tool_calling = true
    reasoning_replay = "kept"             # kept | never | required: see `Replay`
    stream = true                         # false: ask for whole answers
    stream_usage = true                   # false: do not ask for usage in streams
    models = [
        "one-model",
        { name = "another", reasoning_replay = "required" },    # what a table says goes before what the provider says
        { name = "small", max_input_characters = 16000, max_output_tokens = 1024 },    # of prepared requests
    ]
    [provider.extra_body]                 # merged into each request
    thinking = { type = "enabled" }
    [provider.timeouts]                   # seconds, each optional
    first_payload = 60
"""

import logging
import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, StrictBool, ValidationError

from services.agent.settings import AgentSettings
from shared.contracts.errors import ErrorCode, ServiceError
from shared.secret_files import secret

logger = logging.getLogger(__name__)

DEFAULT_NAME = "default"
# What a request is made of is not a provider's to change.
RESERVED_FIELDS = frozenset({"model", "messages", "tools", "stream"})


class Replay(StrEnum):
    """What becomes of a message's thinking when the message is sent again (ON-15).

    - kept: sent back where there was some, under the name it came in.
    - required: also sent on messages with tool calls that had none, empty (DeepSeek answers 400 otherwise).
    - never: left out (DeepSeek's model before answered 400 when it was sent).
    """

    KEPT = "kept"
    REQUIRED = "required"
    NEVER = "never"


class Timeouts(BaseModel):
    """Seconds. Time without payload counts: a provider's keep-alive comments feed no timer. `total` includes what is tried again.

    An answer that is not streamed has one payload, its last: for it `total` alone counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect: float = Field(default=10, gt=0)
    first_payload: float = Field(default=120, gt=0)
    idle: float = Field(default=60, gt=0)
    total: float = Field(default=600, gt=0)


def _unreserved(fields: dict[str, Any]) -> dict[str, Any]:
    if reserved := sorted(RESERVED_FIELDS & fields.keys()):
        raise ValueError(f"it may not set {', '.join(reserved)}")
    return fields


def _sendable(key: SecretStr) -> SecretStr:
    """A header can carry it; the space and line ends around it that files and shells leave are no part of it."""
    secret = key.get_secret_value().strip()
    if not secret.isascii() or not secret.isprintable():
        raise ValueError("it holds characters that no key has")
    return SecretStr(secret)


type ExtraBody = Annotated[dict[str, Any], AfterValidator(_unreserved)]
type Key = Annotated[SecretStr, AfterValidator(_sendable)]


class Model(BaseModel):
    """A model with all that is said of it, by itself or by its provider. `extra_body` goes into each request to it."""

    model_config = ConfigDict(frozen=True)

    name: str
    tool_calling: bool
    reasoning_replay: Replay
    stream: bool
    stream_usage: bool
    extra_body: dict[str, Any]


class Limits(BaseModel):
    """The most that a prepared request may ask of a model, where that is known (RC-20)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_input_characters: int | None = Field(default=None, ge=1)
    max_output_tokens: int | None = Field(default=None, ge=1)


class ModelRule(Limits):
    """What the file says of one model; what it does not say is as the provider has it."""

    name: str = Field(min_length=1)
    tool_calling: StrictBool | None = None
    reasoning_replay: Replay | None = None
    stream: StrictBool | None = None
    extra_body: ExtraBody = {}


def _table(entry: Any) -> Any:
    return {"name": entry} if isinstance(entry, str) else entry


def _named_once(rules: list[ModelRule]) -> list[ModelRule]:
    names = [rule.name for rule in rules]
    if len(set(names)) != len(names):
        raise ValueError("a model is named twice")
    return rules


class Provider(BaseModel):
    """One provider. `base_url` ends before `/chat/completions`; `models` begins with the default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=64)
    base_url: str = Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$")
    api_key: Key | None = None
    models: Annotated[list[Annotated[ModelRule, BeforeValidator(_table)]], Field(min_length=1), AfterValidator(_named_once)]
    tool_calling: StrictBool = True
    reasoning_replay: Replay = Replay.KEPT
    stream: StrictBool = True
    stream_usage: StrictBool = True
    extra_body: ExtraBody = {}
    timeouts: Timeouts = Timeouts()

    @property
    def model_names(self) -> list[str]:
        """The models by name, the default first."""
        return [rule.name for rule in self.models]

    def limits(self, name: str) -> Limits:
        """The limits of a model; none are known of one that is not named."""
        return next((rule for rule in self.models if rule.name == name), Limits())

    def model(self, name: str) -> Model:
        """A model of this provider, with the rules that hold for it. Raises KeyError where it has none of that name."""
        rule = {rule.name: rule for rule in self.models}[name]
        return Model(
            name=name,
            tool_calling=self.tool_calling if rule.tool_calling is None else rule.tool_calling,
            reasoning_replay=rule.reasoning_replay or self.reasoning_replay,
            stream=self.stream if rule.stream is None else rule.stream,
            stream_usage=self.stream_usage,
            extra_body={**self.extra_body, **rule.extra_body},
        )


class ProvidersFileError(Exception):
    """The providers are not usable as they are configured; the message says why in one line."""


class Providers:
    """All providers by name; the first is the default."""

    def __init__(self, providers: list[Provider]) -> None:
        self._by_name = {provider.name: provider for provider in providers}

    @property
    def all(self) -> list[Provider]:
        """In order, the default first."""
        return list(self._by_name.values())

    def choose(self, name: str | None, model: str | None) -> tuple[Provider, str]:
        """The provider and model that a request names; the defaults where it names none.

        Raises:
            ServiceError: `unknown_provider`, `unknown_model`.
        """
        provider = next(iter(self._by_name.values())) if name is None else self._by_name.get(name)
        if provider is None:
            raise ServiceError(
                ErrorCode.UNKNOWN_PROVIDER, f"No provider is called {name!r}; it must be one of: {', '.join(self._by_name)}."
            )
        names = provider.model_names
        if model is not None and model not in names:
            raise ServiceError(ErrorCode.UNKNOWN_MODEL, f"{provider.name} has no model {model!r}; it must be one of: {', '.join(names)}.")
        return provider, model or names[0]


def load(settings: AgentSettings, environment: Mapping[str, str] = os.environ) -> Providers:
    """The default provider from `MODEL_*`, then those of the file.

    Raises:
        ProvidersFileError: there is no provider at all, or one is not usable.
        SecretFileError: the file of a key is not usable.
    """
    providers = []
    if settings.model_base_url:
        fields = {
            "name": DEFAULT_NAME,
            "base_url": settings.model_base_url.rstrip("/"),
            "api_key": settings.model_api_key,
            "models": [settings.model_name],
            "tool_calling": settings.model_tool_calling,
        }
        providers.append(_provider(fields, "The provider of MODEL_BASE_URL"))
    if settings.providers_file is not None:
        providers += _from_file(settings.providers_file, environment)
    if not providers:
        raise ProvidersFileError("No model provider is configured: set MODEL_BASE_URL or MARGINALIA_PROVIDERS.")
    names = [provider.name for provider in providers]
    if len(set(names)) != len(names):
        raise ProvidersFileError(f"Two providers have one name: {', '.join(names)}.")
    return Providers(providers)


def _from_file(path: Path, environment: Mapping[str, str]) -> list[Provider]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ProvidersFileError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProvidersFileError(f"{path} is not TOML: {error}") from None
    tables = content.pop("provider", [])
    if content:
        raise ProvidersFileError(f"{path} holds {', '.join(content)} beside its providers, each of which begins with [[provider]].")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ProvidersFileError(f"{path} does not describe providers: each must begin with [[provider]].")
    return [_from_table(table, f"{path}: provider {number}", environment) for number, table in enumerate(tables, 1)]


def _from_table(table: dict[str, Any], where: str, environment: Mapping[str, str]) -> Provider:
    fields = dict(table)
    if "api_key" in fields:
        raise ProvidersFileError(f"{where} holds a key; name the environment variable that holds it, as key_variable.")
    variable = fields.pop("key_variable", None)
    if variable is not None and not isinstance(variable, str):
        raise ProvidersFileError(f"{where}: key_variable must be the name of an environment variable.")
    if variable is not None:
        if (key := secret(variable, environment)) is None:
            logger.warning("%s is asked without a key: %s is not set", where, variable)
        else:
            fields["api_key"] = SecretStr(key)
    if isinstance(address := fields.get("base_url"), str):
        fields["base_url"] = address.rstrip("/")
    return _provider(fields, where)


def _provider(fields: dict[str, Any], where: str) -> Provider:
    try:
        return Provider.model_validate(fields)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False))
        raise ProvidersFileError(f"{where} cannot be used: {wrong}") from None
