"""What the gateway is told by its environment."""

from pydantic import Field, SecretStr

from shared.settings import DatabaseSettings


class GatewaySettings(DatabaseSettings):
    """Where it listens, and whom it lets in."""

    host: str = Field(default="127.0.0.1", alias="MARGINALIA_HOST", description="Address to listen on.")
    port: int = Field(default=8080, alias="MARGINALIA_PORT", description="Port to listen on.", ge=1, le=65535)
    admin_password: SecretStr | None = Field(
        default=None, alias="MARGINALIA_ADMIN_PASSWORD", description="The first password of the account `admin`; random where not set."
    )
    allowed_origins: str = Field(
        default="",
        alias="MARGINALIA_ALLOWED_ORIGINS",
        description="Origins that may send state-changing requests, parted by spaces or commas; the gateway's own where not set.",
    )

    @property
    def origins(self) -> frozenset[str]:
        """The allow-list."""
        if listed := self.allowed_origins.replace(",", " ").split():
            return frozenset(origin.rstrip("/") for origin in listed)
        hosts = {"127.0.0.1", "localhost", "[::1]"} if self.host in ("127.0.0.1", "0.0.0.0", "::", "::1", "localhost") else {self.host}  # noqa: S104
        own = {f"http://{host}:{self.port}" for host in hosts}
        return frozenset(own | ({f"http://{host}" for host in hosts} if self.port == 80 else set()))
