"""The OpenAPI description, corrected where FastAPI would describe its own defaults: how errors look, and how one logs in."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from services.gateway.access import COOKIE
from services.gateway.problems import MEDIA_TYPE

# Addresses that need no login.
OPEN = frozenset({"/api/auth/login", "/healthz", "/readyz", "/metrics"})


class Problem(BaseModel):
    """An error (RFC 9457). `code` is a stable slug, `detail` a sentence to act on; further fields are facts about the error."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str


def describing(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """What to use as `app.openapi`."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = original()
            _correct(schema)
            app.openapi_schema = schema
        return app.openapi_schema

    return openapi


def _correct(schema: dict[str, Any]) -> None:
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "With `X-CSRF-Token` and `Origin` on changes."},
        "token": {"type": "http", "scheme": "bearer", "description": "A personal access token."},
    }
    problem = {"description": "A problem.", "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = problem
            if path not in OPEN:
                operation["security"] = [{"session": []}, {"token": []}]
