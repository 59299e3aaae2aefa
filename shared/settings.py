"""What every service is told by its environment. A service's own settings extend these; only a `__main__` builds one."""

import ssl
import sys
from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode, urlsplit, urlunsplit

from pydantic import Field, FilePath, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.secret_files import SecretFileError, SettingsWithSecrets


class ServiceSettings(SettingsWithSecrets):
    """Read from the environment variables named by the aliases; see `docs/reference/settings.md`."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True)

    nats_url: str = Field(
        default="nats://127.0.0.1:4222", alias="NATS_URL", description="The NATS server; of a cluster any number, separated by commas."
    )
    nats_password: SecretStr | None = Field(
        default=None,
        alias="NATS_PASSWORD",
        description="The password of this service's user, which has its name; without one, whatever `NATS_URL` holds.",
    )
    ca: FilePath | None = Field(
        default=None,
        alias="MARGINALIA_CA",
        description="A PEM file with who may certify NATS, PostgreSQL and Qdrant; with it nothing is said to them but over TLS.",
    )
    home: Path | None = Field(
        default=None, alias="MARGINALIA_HOME", description="Data directory; where traces are kept without a collector."
    )
    pulse: Path | None = Field(
        default=None,
        alias="MARGINALIA_PULSE",
        description="A file that is touched while the process is well; for a container's health check.",
    )
    otlp_endpoint: str | None = Field(default=None, alias="OTEL_EXPORTER_OTLP_ENDPOINT", description="An OpenTelemetry collector.")
    otlp_headers: SecretStr | None = Field(
        default=None, alias="OTEL_EXPORTER_OTLP_HEADERS", description="What the collector is to be sent with each request, its key for one."
    )

    @field_validator("ca")
    @classmethod
    def _usable(cls, ca: Path | None) -> Path | None:
        if ca is not None:
            try:
                ssl.create_default_context(cafile=ca)
            except OSError:
                raise ValueError("The file holds no certificates that can be read") from None
        return ca

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How to check whom one talks to, where that is to be checked."""
        return None if self.ca is None else ssl.create_default_context(cafile=self.ca)


class DatabaseSettings(ServiceSettings):
    """For services that keep tables."""

    database_url: str = Field(
        default="postgresql://marginalia@127.0.0.1:5432/marginalia",
        alias="DATABASE_URL",
        description="The PostgreSQL database, with the role to use.",
    )
    database_password: SecretStr | None = Field(
        default=None, alias="DATABASE_PASSWORD", description="The role's password, where it is not part of `DATABASE_URL`."
    )

    @property
    def database(self) -> str:
        """The address with all that is needed to connect."""
        parts = urlsplit(self.database_url)
        if self.database_password is not None:
            user, _, hosts = parts.netloc.rpartition("@")
            password = quote(self.database_password.get_secret_value(), safe="")
            parts = parts._replace(netloc=f"{user.partition(':')[0]}:{password}@{hosts}")
        if self.ca is not None and "sslmode" not in parse_qs(parts.query):
            checked = urlencode({"sslmode": "verify-full", "sslrootcert": str(self.ca.absolute())})
            parts = parts._replace(query="&".join(filter(None, (parts.query, checked))))
        return urlunsplit(parts)


def read[Settings: BaseSettings](kind: type[Settings]) -> Settings:
    """The settings of this process; where they cannot be used, the process ends and says why, a line for each."""
    try:
        return kind()
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors(include_input=False)]
    except SecretFileError as error:
        problems = [str(error)]
    sys.exit("\n".join(problems))
