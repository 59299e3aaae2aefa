"""The limits within which a conversation that was read can be imported again, as docs/http.md says them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from services.gateway import strict_json
from services.gateway.imported_conversation import ImportedConversation
from shared.contracts.errors import ServiceError


def read(reply: dict[str, Any]) -> None:
    body = {"title": "Old", "messages": [{"role": "assistant", "content": "", **reply}]}
    ImportedConversation.model_validate(strict_json.loads(json.dumps(body).encode())).to_contract()


def nested(levels: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {"x": 1}
    for _ in range(levels - 1):
        arguments = {"x": arguments}
    return {"tool_calls": [{"name": "f", "arguments": arguments}]}


@pytest.mark.parametrize(
    ("limit", "made"),
    [
        (200_000, lambda size: {"content": "x" * size}),
        (200_000, lambda size: {"thinking": "x" * size}),
        (1_000, lambda size: {"tool_calls": [{"name": "f"}] * size}),
        (1_000, lambda size: {"sources": [{"file_path": "a.md"}] * size}),
        (1_000, lambda size: {"tool_calls": [{"name": "f", "id": "x" * size}]}),
        (1_000, lambda size: {"tool_calls": [{"name": "x" * size}]}),
        (26, nested),
        (2**63 - 1, lambda size: {"tool_calls": [{"name": "f", "arguments": {"x": size}}]}),
    ],
)
def test_what_is_read_can_be_imported_again_up_to_its_limit(limit: int, made: Callable[[int], dict[str, Any]]) -> None:  # VT-5
    read(made(limit))
    with pytest.raises((ServiceError, ValidationError)):
        read(made(limit + 1))
