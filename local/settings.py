"""The variables of the local stack; nothing else of `local` reads the environment."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from local.errors import StartError
from shared.secret_files import SUFFIX, SettingsWithSecrets

_INHERITED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV"),
    *("PYTHONPATH", "PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONDONTWRITEBYTECODE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)


def _inherited() -> dict[str, str]:
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def _telemetry() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}


class LocalSettings(SettingsWithSecrets):
    """What the person who starts the stack has asked for; an empty variable counts as absent."""

    # By alias alone: with the field's name allowed too, HOME and PORT would be read.
    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, extra="ignore")

    home: Path = Field(Path("data"), alias="MARGINALIA_HOME")
    host: str = Field("127.0.0.1", alias="MARGINALIA_HOST")
    port: int = Field(8080, alias="MARGINALIA_PORT", ge=1, le=65535)
    vaults: Annotated[tuple[Path, ...], NoDecode] = Field((), alias="MARGINALIA_VAULTS")
    admin_password: SecretStr | None = Field(None, alias="MARGINALIA_ADMIN_PASSWORD")
    allowed_origins: str | None = Field(None, alias="MARGINALIA_ALLOWED_ORIGINS")
    providers: Path | None = Field(None, alias="MARGINALIA_PROVIDERS")

    nats_url: SecretStr | None = Field(None, alias="NATS_URL")
    database_url: SecretStr | None = Field(None, alias="DATABASE_URL")
    qdrant_url: SecretStr | None = Field(None, alias="QDRANT_URL")
    qdrant_api_key: SecretStr | None = Field(None, alias="QDRANT_API_KEY")

    model_base_url: str | None = Field(None, alias="MODEL_BASE_URL")
    model_api_key: SecretStr | None = Field(None, alias="MODEL_API_KEY")
    model_name: str | None = Field(None, alias="MODEL_NAME")
    model_tool_calling: str | None = Field(None, alias="MODEL_TOOL_CALLING")

    embedding_base_url: str | None = Field(None, alias="EMBEDDING_BASE_URL")
    embedding_api_key: SecretStr | None = Field(None, alias="EMBEDDING_API_KEY")
    embedding_model: str | None = Field(None, alias="EMBEDDING_MODEL")

    # What every child process is given besides: where programs, time zone and certificates are; where traces go.
    inherited: Mapping[str, str] = Field(default_factory=_inherited, exclude=True)
    telemetry: Mapping[str, str] = Field(default_factory=_telemetry, exclude=True)

    def provider_keys(self) -> dict[str, str]:
        """The variables that MARGINALIA_PROVIDERS names as holding a key, and those that name a key's file, as far as they are set.

        Raises `StartError` where the file cannot be read.
        """
        if self.providers is None:
            return {}
        try:
            tables = tomllib.loads(self.providers.read_text(encoding="utf-8")).get("provider", [])
        except OSError as error:
            raise StartError(f"{self.providers} cannot be read: {error.strerror} (MARGINALIA_PROVIDERS)") from error
        except ValueError as error:
            raise StartError(f"{self.providers} is not TOML: {error} (MARGINALIA_PROVIDERS)") from error
        names = [table.get("key_variable") for table in tables if isinstance(table, dict)]
        variables = [variable for name in names if isinstance(name, str) for variable in (name, name + SUFFIX)]
        return {variable: os.environ[variable] for variable in variables if variable in os.environ}

    @field_validator("vaults", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part for part in value.split(":") if part) if isinstance(value, str) else value
