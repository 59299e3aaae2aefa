"""Where front matter ends, and what only looks like it."""

import time

import pytest

from shared.contracts.front_matter import Split, split


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["---", "..."])
def test_a_note_is_parted_at_its_fences(newline: str, mark: str, end: str) -> None:
    parts = split(newline.join([mark + "---", "title: T", end, "body", ""]))
    assert parts.source == f"title: T{newline}"
    assert parts.body == f"body{newline}"


@pytest.mark.parametrize("text", ["---\ntitle: T\n", "text\n---\na: b\n---\n", " ---\na: b\n---\n", "---", "----\na: b\n---\n", ""])
def test_what_is_not_fenced_is_body(text: str) -> None:
    assert split(text) == Split(None, text)


def test_a_fence_beyond_the_limit_does_not_close() -> None:
    assert split("---\n" + "a: b\n" * 10_000 + "---\n").source is None


@pytest.mark.parametrize(
    "body",
    [
        "title: x\n\n# Heading\n\nText that has no end of front matter before it.\n---\nmore\n",
        "\nText between two rules.\n\n---\nmore\n",
        "# Heading\n- item\n---\n",
        "- item\n---\n",
        "\n# Heading\n\n---\n",
        "<% template %>\n---\n",
        "https://x.y/z\n---\n",
    ],
)
def test_text_between_rules_and_behind_an_end_that_was_forgotten_is_body(body: str) -> None:
    assert split(f"---\n{body}") == Split(None, f"---\n{body}")


@pytest.mark.parametrize(
    "source",
    [
        "", "\n", "# a comment\n\ntitle: x\n", "title: x\ntags:\n- a\n-\n- b\n\n# comment\nkey: |\n  text\n\n  more\n",
        "{title: x}\n", "{\n  title: x,\n}\n", "'a b': x\n\"c: d\": y\n", "标题: x\ndate created: 2026\na:b: c\n", "a : b\n", "? a\n",
        "a: &a x\nb: *a\n", "a: 1\na: 2\n", "a: [\n  b\n]\n", "title: {{title}}\n",
    ],
)  # fmt: skip
def test_keys_with_what_belongs_to_them_are_front_matter_whether_yaml_takes_them_or_not(source: str) -> None:
    assert split(f"---\n{source}---\nbody") == Split(source, "body")


@pytest.mark.parametrize("line", ["a" * 8_000_000, "a:" * 4_000_000, ":" * 8_000_000, " " * 8_000_000, '"' * 8_000_000])
def test_hostile_lines_take_no_longer_than_others(line: str) -> None:
    began = time.process_time()
    assert split(f"---\n{line}\nb").source is None
    assert split("---\n" + f"{line[:10]}\n" * 800_000).source is None
    assert time.process_time() - began < 5
