"""Which marks count as citations (ON-16, ON-17), and what becomes of them when a model reads an answer again (ON-13)."""

import pytest

from services.agent.citations import cited_numbers, cited_sources, names_of, without_numbers

KNOWN = frozenset({1, 2, 3, 12})


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("So it is [1].", [1]),
        ("So [2][1], again [2].", [2, 1]),
        ("Lists [1, 3], [2，3].", [1, 3, 2]),  # CherryHQ/cherry-studio#10621
        ("[1、2]", [1, 2]),
        ("【1】和【2，3】", [1, 2, 3]),  # pipeshub-ai/pipeshub-ai#1005
        ("**bold [1]** and *[2]* and ~~[3]~~", [1, 2, 3]),
        ("- item [1]\n\n> quote [2]\n\n| a [3] | b |\n|---|---|\n| c | [12] |", [1, 2, 3, 12]),
        ("# Heading [1]\n\nHeading [2]\n===\n\n1. [3]\n   - [12]", [1, 2, 3, 12]),
        ("Unknown [9], [0], [01].", [1]),  # stella/stella#1686
        ("[9, 2]", [2]),
        ("$x[1]$ is text", [1]),
        ("[1](see there) is no link", [1]),
        ("![1] is no image", [1]),
        ("[see [1] there]", [1]),
        ("[[1]] [[1, 2]] but [[2] and [3]]", [2, 3]),
        ("[1,\n2] is no list of numbers", []),
        ("[1", []),
        ("1]", []),
        ("", []),
    ],
)
def test_a_number_counts_where_a_reader_sees_it_as_text(text: str, cited: list[int]) -> None:
    assert cited_numbers(text, KNOWN) == cited


@pytest.mark.parametrize(
    "text",
    [
        "`code [1]` and ``[2] ` [3]``",
        "`code over\nlines [1]`",
        "``` inline [1] ```",
        "````` [1] ` [2] `````",
        "```\n[1]\n```\n\n~~~py\nx[2]\n~~~",  # HKUDS/DeepTutor#469
        "```python\ndp[1][2] = dp[0][1] + [1, 2][0]\n```",
        "```\n[1]\n~~~\n[2]\n``\n[3]",
        "unclosed fence\n\n```\n[1]",
        "- ```\n  [1]\n\n  [2]\n  ```",
        "> ~~~\n> [1]\n> ~~~",
        "1. > - ```\n   >   [1]",
        "    indented [1]",
        "\tindented [1]\n\n\n    still [2]",
        "- item\n\n      indented [1]",
        ">     indented [1]",
        ">\tone\n>\n>\t\t[1]",
        r"escaped \[1] and \[2\] and [3\]",
        "[1](http://x) and ![2](y) and [text [3]](z)",
        "[text [1]](<a b> 'title') [x](/u[2] \"[3]\") [y](\n/u\n(t [12])\n)",
        "[![image [1]](a)](b) [a ![b [2]](c) d](e) ![a [link [3]](b)](c)",
        "[1]: http://x\n\nsee [1]",
        "[1]\n\n[1]:\n  <http://x>\n  'title'",
        "[text [2]][Ref] and [ref] [3][ref]\n\n> [REF]: /u",
        "[1][]\n\n[1]: /u",
        "<b title='[1]'>x</b> <b\ntitle=\"[2]\"> <!-- [3] -->",
        "a <!-- [1]\n[2] --> <? [3] ?> <!X [12]> <![CDATA[ [1] ]]>",
        "<http://x/[1]> <https:[2]>",
        "<div>\n[1]\n</div>\n[2]",
        "<!--\n\n[1]\n\n-->",
        "<script>\n\n[1]\n\n</script>",
        "- <details>\n  [1]",
        "footnote [^1] and wiki [[1]] and [[2]]",
        "| a |\n|---|\n| b | excess [1] |",
        "| `a | [x]` |\n|---|---|\n| `[1]` | \\[2] |",
        "[1 2] [1;2] [1,] [,1] [a1] [ 1] [12345] (1) {1}",
    ],
)
def test_a_number_in_code_a_link_html_or_behind_an_escape_does_not_count(text: str) -> None:  # brave/brave-core#36236
    assert cited_numbers(text, KNOWN) == []


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("`unclosed [1]", [1]),
        ("``a` [1]", [1]),
        ("a ` b\n\n[1] ` c", [1]),  # no code span reaches over the end of its paragraph
        ("- a ` b\n- [1] ` c", [1]),
        ("| a ` | ` [1] |\n|---|---|\n| [2] | b |", [1, 2]),
        ("```\ncode\n```\n[1]", [1]),
        ("> ```\n> code\n\n[1]", [1]),  # the quote has ended, and the code in it
        ("- ```\n  code\n\n[1]", [1]),
        ("``` no ` fence\n[1]", [1]),
        ("text\n    not indented code [1]", [1]),
        ("> text\nlazily [1]", [1]),
        ("- item\n\n  paragraph [1]\n\n- \n\n  [2]", [1, 2]),
        ("-     code [1]\n\n  text [2]", [2]),
        ("a [text](no link [1]", [1]),
        ("[a](b [1]", [1]),
        ("[a [link](b) [1]](c)", [1]),  # a link holds no link, so the outer brackets are text
        ("a < b [1] > c <3 [2] <!-- [3]", [1, 2, 3]),
        ("<b [1]> <a@> [2]", [1, 2]),
        ("<div>\n[1]\n\n[2]", [2]),
        ("text\n<custom>[1]\n</custom>", [1]),
        ("<!-- a --> [1]\n\n[2]", [2]),
        (r"\\[1] \`[2]\` \<b [3]>", [1, 2, 3]),
        ("\\【1】", [1]),
        ("[1]: /u 'open\n\n[1]", [1]),
        ("[ref]: /u\n===\n[1]", [1]),
        ("[1] is [ref]\n\n[ref]: /u", [1]),
        ("a\r\n\r\n    [1]\r\rb [2]", [2]),
        ("\0[1]", [1]),
        ("| no table [1]\n| x", [1]),
        ("head | [1]\n--|--\n| \\| [2]\n\nafter [3]", [1, 2, 3]),
    ],
)
def test_text_beside_what_hides_numbers_is_text(text: str, cited: list[int]) -> None:
    assert cited_numbers(text, KNOWN) == cited


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("a\n\nb\n\nc ` d\n\n[1] ` e\n\nf\n\ng", [1]),
        ("a\nb\nc\nd ` e\n[1] ` f\ng\nh\n\ni", []),
        ("- a\n- b\n- c\n- d ` e\n- [1] ` f\n- g\n- h\n", [1]),
        ("1. a\n2. b\n3. c\n4. d ` e\n\n5. [1] ` f\n6. g\n7. h\n", [1]),
        ("# a\n# b\n# c ` d\n# [1] ` e\n# f\n# g", [1]),
        ("> a\n> b\n> c\n> d <b\n> e='[1]'> [2]\n> f\n> g ` h\n>\n>\n> [3] ` i\n> j\n> k\n", [2, 3]),
        ("|a|b|\n|-|-|\n|c|d|\n|e|f|\n|g ` h|[1] ` i|\n|n|o|\n|i|j|[2]|\n|k|\\| ` [3] `|\n|l|m|\n", [1]),
        ("[a]: b\n[c]: d\n[1]: e\n[f]: g\n[h]: i\n\n[1] [2] [x [3]][f]", [2]),
        ("```\na\nb\nc [1]\n```\n[2]", [2]),
        ("~~~~\na\nb\nc\n~~~\n[1]\n~~~~~ \n[2]", [2]),
        ("    a\n    b\n    c\n\n\t[1]\n\n[2]", [2]),
        ("<div>\na\nb\nc [1]\n\n[2]", [2]),
        ("<!--\na\nb\nc\n[1] --> [2]\n[3]", [3]),
        ("\n \n\t\n  \n\n    [1]\n[2]", [2]),
    ],
)
def test_lines_that_repeat_each_other_are_read_like_any_others(text: str, cited: list[int]) -> None:
    assert cited_numbers(text, KNOWN) == cited
    assert cited_numbers(text.replace("\n", "\r\n"), KNOWN) == cited


def test_what_lies_deeper_than_a_hundred_quotes_is_not_read() -> None:
    assert cited_numbers(">" * 100 + " [1]\n\n" + ">" * 101 + " [2]\n\n[3]", KNOWN) == [1, 3]


def test_without_known_numbers_nothing_is_cited() -> None:
    assert cited_numbers("[1]", frozenset()) == []


SOURCES = [
    {"number": 1, "citation_id": "cit_blk_0a1b", "file_path": "a.md"},
    {"number": 2, "citation_id": "cit_blk_6f9c-4e_2", "file_path": "notes/b.md"},
]


def test_an_older_answers_citation_ids_count_as_the_numbers_of_their_sources() -> None:  # ON-17
    text = "Old [cit_blk_6f9c-4e_2] and [1], unknown [cit_blk_none], `[cit_blk_0a1b]`, \\[cit_blk_0a1b]."
    assert cited_sources(text, SOURCES) == [2, 1]
    assert cited_sources("[cit_blk_0a1b](x) [cit_blk_0a1b, cit_blk_0a1b]", SOURCES) == []


@pytest.mark.parametrize("text", ["[0a1b]", "[blk_0a1b]", "[a.md]", "cit_blk_0a1b", "[CIT_BLK_0a1b]"])
def test_a_raw_id_is_no_citation(text: str) -> None:  # jswest/bartleby#623
    assert cited_sources(text, SOURCES) == []


def test_earlier_numbers_become_the_names_of_their_notes() -> None:  # ON-13
    text = "See [1][2], [1, 2], 【2】, [cit_blk_0a1b] and [7], [2, 7], [cit_blk_none]."
    expected = (
        "See (a.md)(notes/b.md), (a.md)(notes/b.md), (notes/b.md), (a.md) and [7], (notes/b.md)[7], [cit_blk_none]."  # 7 is none of ours
    )
    assert without_numbers(text, names_of(SOURCES)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "```\nx[1] = y[2]\n```",
        "Take `x[1]`.",
        "A\r\n\tB \0 \\[1] [[1]] [1](x) <a b='[1]'>\r",
        "    x[1]\n\n> ```\n> y[2]",
        "[1]: x\n\n[1] and [cit_blk_none]",
    ],
)
def test_what_is_no_citation_is_said_again_byte_for_byte(text: str) -> None:  # brave/brave-core#36236
    assert without_numbers(text, names_of(SOURCES)) == text


def test_a_citation_between_pieces_of_code_is_the_only_thing_that_changes() -> None:
    text = "> `[1]` says\r\n> \t[1]: `[2]`\r\n\r\n```\r\n[2]\r\n```\r\n中[2]文"
    assert without_numbers(text, names_of(SOURCES)) == text.replace("\t[1]", "\t(a.md)").replace("中[2]", "中(notes/b.md)")
