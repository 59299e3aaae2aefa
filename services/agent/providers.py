"""The providers as data: who they are, what their models can do, how long they may take.

More providers come from a TOML file:

    [[provider]]
    name = "deepseek"
    base_url = "https://api.example.com/v1"
    key_variable = "EXAMPLE_API_KEY"      # the environment variable that holds the key; the key itself stands nowhere else
    models = ["one-model", "another"]
    tool_calling = true
    reasoning_replay = "kept"             # kept | never | required: see `Replay`
    [provider.timeouts]                   # seconds, each optional
    first_payload = 60
"""

import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from services.agent.settings import AgentSettings
from shared.contracts.errors import ErrorCode, ServiceError

DEFAULT_NAME = "default"


class Replay(StrEnum):
    """What becomes of a message's thinking when the message is sent again (ON-15).

    - kept: sent back where there was some.
    - required: also sent empty on messages with tool calls (DeepSeek answers 400 otherwise).
    - never: left out (its predecessor answered 400 when it was sent).
    """

    KEPT = "kept"
    REQUIRED = "required"
    NEVER = "never"


class Timeouts(BaseModel):
    """Seconds. Time without payload counts: a provider's keep-alive comments feed no timer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect: float = Field(default=10, gt=0)
    first_payload: float = Field(default=120, gt=0)
    idle: float = Field(default=60, gt=0)
    total: float = Field(default=600, gt=0)


class Provider(BaseModel):
    """One provider. `base_url` ends before `/chat/completions`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=64)
    base_url: str = Field(pattern=r"^https?://")
    api_key: SecretStr | None = None
    models: list[str] = Field(min_length=1)
    tool_calling: bool = True
    reasoning_replay: Replay = Replay.KEPT
    timeouts: Timeouts = Timeouts()


class ProvidersFileError(Exception):
    """The TOML file cannot be used; the message says why."""


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
        if model is not None and model not in provider.models:
            raise ServiceError(
                ErrorCode.UNKNOWN_MODEL, f"{provider.name} has no model {model!r}; it must be one of: {', '.join(provider.models)}."
            )
        return provider, model or provider.models[0]


def load(settings: AgentSettings, environment: Mapping[str, str] = os.environ) -> Providers:
    """The default provider from `MODEL_*`, then those of the file.

    Raises:
        ProvidersFileError: there is no provider at all, or the file is not usable.
    """
    providers = []
    if settings.model_base_url:
        providers.append(
            Provider(
                name=DEFAULT_NAME,
                base_url=settings.model_base_url.rstrip("/"),
                api_key=settings.model_api_key,
                models=[settings.model_name],
                tool_calling=settings.model_tool_calling,
            )
        )
    if settings.providers_file is not None:
        providers += _from_file(settings.providers_file, environment)
    if not providers:
        raise ProvidersFileError("No model provider is configured: set MODEL_BASE_URL or MARGINALIA_PROVIDERS.")
    if len({provider.name for provider in providers}) != len(providers):
        raise ProvidersFileError(f"Two providers have one name: {', '.join(provider.name for provider in providers)}.")
    return Providers(providers)


def _from_file(path: Path, environment: Mapping[str, str]) -> list[Provider]:
    try:
        tables = tomllib.loads(path.read_text("utf-8")).get("provider", [])
        return [_from_table(table, environment) for table in tables]
    except OSError as error:
        raise ProvidersFileError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProvidersFileError(f"{path} is not TOML: {error}") from None
    except ValidationError as error:
        fields = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False))
        raise ProvidersFileError(f"{path} does not describe providers: {fields}") from None


def _from_table(table: dict[str, object], environment: Mapping[str, str]) -> Provider:
    fields = dict(table)
    variable = fields.pop("key_variable", None)
    if variable is not None and (key := environment.get(str(variable))):
        fields["api_key"] = SecretStr(key)
    if isinstance(address := fields.get("base_url"), str):
        fields["base_url"] = address.rstrip("/")
    return Provider.model_validate(fields)
