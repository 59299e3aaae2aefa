"""When a client wants Markdown."""

import pytest

from services.gateway.accept import prefers_markdown


@pytest.mark.parametrize(
    ("accept", "markdown"),
    [
        ("text/markdown", True),
        ("text/markdown, application/json", True),
        ("application/json, text/markdown", False),
        ("application/json;q=0.5, text/markdown", True),
        ("text/markdown;q=0, application/json", False),
        ("text/markdown;q=0", False),
        ("text/markdown;q=nonsense", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_the_better_liked_form_is_sent(accept: str, markdown: bool) -> None:
    assert prefers_markdown(accept) is markdown
