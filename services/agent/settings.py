"""What the agent is told by its environment."""

from pathlib import Path

from pydantic import Field, SecretStr

from shared.settings import DatabaseSettings


class AgentSettings(DatabaseSettings):
    """The default provider, and a file with more."""

    model_base_url: str | None = Field(
        default=None, alias="MODEL_BASE_URL", description="An OpenAI-compatible provider, up to and including `/v1`."
    )
    model_api_key: SecretStr | None = Field(default=None, alias="MODEL_API_KEY", description="Its key.")
    model_name: str = Field(default="marginalia-demo", alias="MODEL_NAME", description="The model to ask for.")
    model_tool_calling: bool = Field(default=True, alias="MODEL_TOOL_CALLING", description="Whether it can call tools.")
    providers_file: Path | None = Field(default=None, alias="MARGINALIA_PROVIDERS", description="A TOML file with more providers.")
