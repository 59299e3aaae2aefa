"""The models by the names that OpenAI's clients use: the default provider's by their own, others' as `<provider>/<model>`."""

from typing import Any

from shared.contracts.chat import ProviderInfo
from shared.contracts.errors import ErrorCode, ServiceError


def catalogue(providers: list[ProviderInfo]) -> dict[str, tuple[str, str]]:
    """Name to provider and model; the default provider is the first. A name that two would have is the first one's."""
    names: dict[str, tuple[str, str]] = {}
    for position, provider in enumerate(providers):
        for model in provider.models:
            names.setdefault(model if position == 0 else f"{provider.name}/{model}", (provider.name, model))
    return names


def chosen(providers: list[ProviderInfo], name: str) -> tuple[str, str]:
    """The provider and model that a name means.

    Raises:
        ServiceError: `model_not_found`.
    """
    names = catalogue(providers)
    if name not in names:
        raise ServiceError(ErrorCode.MODEL_NOT_FOUND, f"There is no such model; it must be one of: {', '.join(names)}.", param="model")
    return names[name]


def listed(name: str, provider: str) -> dict[str, Any]:
    """A model as `GET /v1/models` shows it. When a provider made it is not known."""
    return {"id": name, "object": "model", "created": 0, "owned_by": provider}
