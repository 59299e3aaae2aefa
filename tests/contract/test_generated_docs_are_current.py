"""docs/reference, and what else is made from the code, says what the code says."""

from docs.generate import pages


def test_the_reference_is_what_the_code_would_generate() -> None:
    for page, text in pages().items():
        assert page.read_text("utf-8") == text, f"{page.name} is stale: run `make docs`"
