"""Which links of a message lead to notes (MN-3, MN-6)."""

import pytest

from services.contexts.mentions import Target, links, resolve


@pytest.mark.parametrize(
    ("text", "refs"),
    [
        ("引用笔记 [标题](notes/x.md)", ["notes/x.md"]),
        ("Referenced note [A \\] title](<a b.md>) and [again](a%20b.md)", ["a b.md"]),
        ("[x](%E6%B0%B4.md)", ["水.md"]),
        ("[x](a%2520b.md)", ["a%20b.md"]),
        ("`[x](a.md)` and\n\n```\n[y](b.md)\n```\n\n    [z](c.md)", []),
        ("![image](a.md) <a.md> plain a.md", []),
        ("[one](a.md) [two](b.md) [one](a.md)", ["a.md", "b.md"]),
        ("@title alone", []),
    ],
)
def test_inline_links_outside_code_count(text: str, refs: list[str]) -> None:
    assert [link.ref for link in links(text)] == refs


@pytest.mark.parametrize(
    ("ref", "target"),
    [
        ("notes/x.md", Target(None, "notes/x.md")),
        ("./notes/../x.md#heading", Target(None, "x.md")),
        ("../other/notes/x.md", Target("other", "notes/x.md")),
        ("/other/x.MD", Target("other", "x.MD")),
        ("x.markdown", Target(None, "x.markdown")),
        ("../../etc/passwd.md", None),
        ("../x.md", None),
        ("/../x.md", None),
        ("/x.md", None),
        ("x.txt", None),
        ("http://x/y.md", None),
        ("//host/x.md", None),
        ("a\\b.md", None),
        ("a\x00.md", None),
        (".md/", None),
    ],
)
def test_a_reference_resolves_to_a_note_of_a_workspace_or_to_nothing(ref: str, target: Target | None) -> None:
    assert resolve(ref) == target
