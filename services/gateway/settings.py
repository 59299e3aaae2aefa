"""What the gateway is told by its environment."""

from pydantic import Field, FilePath, SecretStr, model_validator

from shared.settings import DatabaseSettings


class GatewaySettings(DatabaseSettings):
    """Where it listens, and whom it lets in."""

    host: str = Field(default="127.0.0.1", alias="MARGINALIA_HOST", description="Address to listen on.")
    port: int = Field(default=8080, alias="MARGINALIA_PORT", description="Port to listen on.", ge=1, le=65535)
    certificate: FilePath | None = Field(
        default=None,
        alias="MARGINALIA_TLS_CERTIFICATE",
        description="A PEM file with the gateway's certificate and its chain; with `MARGINALIA_TLS_KEY` it speaks https alone.",
    )
    key: FilePath | None = Field(default=None, alias="MARGINALIA_TLS_KEY", description="A PEM file with the certificate's key.")
    admin_password: SecretStr | None = Field(
        default=None, alias="MARGINALIA_ADMIN_PASSWORD", description="The first password of the account `admin`; random where not set."
    )
    allowed_origins: str = Field(
        default="",
        alias="MARGINALIA_ALLOWED_ORIGINS",
        description="Origins that may send state-changing requests, parted by spaces or commas; the gateway's own where not set.",
    )

    @model_validator(mode="after")
    def _both(self) -> "GatewaySettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("MARGINALIA_TLS_CERTIFICATE and MARGINALIA_TLS_KEY go together")
        return self

    @property
    def scheme(self) -> str:
        """What it speaks."""
        return "http" if self.certificate is None else "https"

    @property
    def origins(self) -> frozenset[str]:
        """The allow-list."""
        if listed := self.allowed_origins.replace(",", " ").split():
            return frozenset(origin.rstrip("/") for origin in listed)
        hosts = {"127.0.0.1", "localhost", "[::1]"} if self.host in ("127.0.0.1", "0.0.0.0", "::", "::1", "localhost") else {self.host}  # noqa: S104
        own = {f"{self.scheme}://{host}:{self.port}" for host in hosts}
        usual = 80 if self.scheme == "http" else 443
        return frozenset(own | ({f"{self.scheme}://{host}" for host in hosts} if self.port == usual else set()))
