"""What every service is told by its environment. A service's own settings extend these; only a `__main__` builds one."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """Read from the environment variables named by the aliases; see `docs/reference/settings.md`."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    nats_url: str = Field(default="nats://127.0.0.1:4222", alias="NATS_URL", description="The NATS server; credentials in the URL.")
    home: Path | None = Field(
        default=None, alias="MARGINALIA_HOME", description="Data directory; where traces are kept without a collector."
    )
    otlp_endpoint: str | None = Field(default=None, alias="OTEL_EXPORTER_OTLP_ENDPOINT", description="An OpenTelemetry collector.")


class DatabaseSettings(ServiceSettings):
    """For services that keep tables."""

    database_url: str = Field(
        default="postgresql://marginalia@127.0.0.1:5432/marginalia",
        alias="DATABASE_URL",
        description="The PostgreSQL database.",
    )
