"""What retrieval is told by its environment."""

from pydantic import Field, SecretStr, model_validator

from shared.settings import DatabaseSettings


class RetrievalSettings(DatabaseSettings):
    """Where the index and the embedding model are."""

    qdrant_url: str | None = Field(default=None, alias="QDRANT_URL", description="A Qdrant server; the embedded engine where absent.")
    qdrant_api_key: SecretStr | None = Field(default=None, alias="QDRANT_API_KEY", description="Its key.")
    embedding_base_url: str | None = Field(
        default=None, alias="EMBEDDING_BASE_URL", description="An OpenAI-compatible API with `/embeddings`, up to and including `/v1`."
    )
    embedding_api_key: SecretStr | None = Field(default=None, alias="EMBEDDING_API_KEY", description="Its key.")
    embedding_model: str = Field(
        default="multilingual-e5-small+all-minilm-l6-v2", alias="EMBEDDING_MODEL", description="The model to ask for."
    )

    @model_validator(mode="after")
    def _encrypted(self) -> "RetrievalSettings":
        if self.ca is not None and (self.qdrant_url or "").startswith("http://"):
            raise ValueError("With MARGINALIA_CA, QDRANT_URL must begin with https://")
        return self
