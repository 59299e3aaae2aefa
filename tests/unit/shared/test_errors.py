"""What a refused request is told: the places as its writer knows them, never what it said there."""

import pytest
from pydantic import ValidationError

from shared.contracts.markdown import Compose
from shared.messaging.errors import invalid_request


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ('{"document": {"blocks": [{"type": "list", "items": ["a", {"blocks": [{"type": "paragraph", "content": [{"type": "bold"}]}]}]}]}}',
         "document.blocks.0.items.1.blocks.0.content.0.content"),
        ('{"document": {"blocks": [{"type": "video"}]}}', "document.blocks.0"),
        ('{"document": {"blocks": [{"type": "html", "html": 5}]}}', "document.blocks.0.html"),
        ('{"document": {"blocks": [{"type": "rule", "rule": "secret"}]}}', "document.blocks.0.rule"),
        ('{"document": {"blocks": [{"type": "table", "header": ["a"], "rows": [["b", 3]]}]}}', "document.blocks.0.rows.0.1"),
        ('{"preset": {}}', "document"),
        ('{"document": ', ""),
    ],
)  # fmt: skip
def test_a_place_is_named_as_in_the_body_without_the_kinds_that_were_chosen_among(body: str, location: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Compose.model_validate_json(body)
    error = invalid_request(caught.value, body.encode())
    assert [reason["location"] for reason in error.extra["errors"]] == [location]
    assert "secret" not in str(error.extra)
