"""Which numbers count as citations (ON-16)."""

import pytest

from services.agent.citations import cited_numbers, without_numbers

KNOWN = frozenset({1, 2, 3, 12})


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("So it is [1].", [1]),
        ("So [2][1], again [2].", [2, 1]),
        ("Lists [1, 3], [2，3].", [1, 3, 2]),
        ("【1】和【2，3】", [1, 2, 3]),
        ("**bold [1]** and *[2]*", [1, 2]),
        ("- item [1]\n\n> quote [2]\n\n| a [3] | b |\n|---|---|\n| c | [12] |", [1, 2, 3, 12]),
        ("# Heading [1]", [1]),
        ("Unknown [9], [0], [01].", [1]),
        ("`code [1]` and ``[2]``", []),
        ("```\n[1]\n```\n\n~~~py\nx[2]\n~~~", []),
        ("    indented [1]", []),
        (r"escaped \[1] and \[2\] and 【1】", [1]),
        ("[1](http://x) and ![2](y) and [text [3]](z)", []),
        ("[1]: http://x\n\nsee [1]", []),
        ("<b title='[1]'>x</b> <!-- [2] --> [3]", [3]),
        ("<div>\n[1]\n</div>", []),
        ("footnote [^1] and wiki [[1]] and [[2]]", []),
        ("unclosed fence\n\n```\n[1]", []),
        ("[1", []),
        ("", []),
    ],
)
def test_a_number_counts_where_a_reader_sees_it_as_text(text: str, cited: list[int]) -> None:
    assert cited_numbers(text, KNOWN) == cited


def test_without_known_numbers_nothing_is_cited() -> None:
    assert cited_numbers("[1]", frozenset()) == []


def test_earlier_numbers_become_the_names_of_their_notes() -> None:
    names = {1: "a.md", 2: "b.md"}
    assert without_numbers("See [1][2], [1, 2] and [7].", names) == "See (a.md)(b.md), (a.md)(b.md) and [7]."
