"""docs/reference says what the code says."""

from docs.generate import REFERENCE, pages


def test_the_reference_is_what_the_code_would_generate() -> None:
    for name, text in pages().items():
        assert (REFERENCE / name).read_text("utf-8") == text, f"{name} is stale: run `make docs`"
