"""The scanner against a whole CommonMark parser, on Markdown put together at random.

Each mark in a text has a number of its own, so that both have to agree on every single one. Where the two differ by choice, the reason
stands in `DIFFERENCES`; such texts are passed over.
"""

import re
from collections.abc import Iterator
from itertools import count

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.agent.citations import cited_numbers, without_numbers

NUMBERS = range(1, 500)
ESCAPED_BRACKET = "\ue000"
MARK = re.compile(rf"(?<![\[{ESCAPED_BRACKET}])\[(\d+(?:[,，] ?\d+)?)\]|\[(\d+(?:[,，] ?\d+)?)\](?!\])|【(\d+)】")

DIFFERENCES = {
    # "A comment ends with the first `-->`": the parser misses it behind another hyphen.
    "a comment's last hyphen": re.compile(r"--->"),
    # "Links may not contain other links, at any level of nesting": the parser lets one in within an image.
    "a link in an image in a link": re.compile(r"!\[[^\]]*\["),
    # The parser looks for a table first; as in GFM, a line that begins a list, a quote, code or HTML begins no table.
    "the head of a table begins something else": re.compile(
        r"^(?:[ \t>]*(?:[-+*#>]|\d+[.)]|<|```|~~~| {4}|\t)|[^\n]*[-+*.)>][ \t]+(?:<|```|~~~))[^\n]*\n[ \t>]*[|:-][-|: \t]*$", re.MULTILINE
    ),
    # "Indented code cannot interrupt a paragraph": nor can what is indented as much, where the parser takes a quote's or an item's
    # paragraph to have ended.
    "a lazy line that is indented by four": re.compile(r"^(?=[^\n]*(?:[-+*>]|\d[.)]))[^\n]+\n(?: {4}| {0,3}\t)", re.MULTILINE),
    # Tabs stop at every fourth column of the line: behind two markers the parser loses count.
    "a tab behind two markers": re.compile(r"(?:[-+*>]|\d[.)])[ \t]*(?:[-+*>]|\d[.)])[ \t]*\t"),
    # A definition over several lines: whether a line right after it goes on a paragraph is left open; we say that it does.
    "what follows a definition": re.compile(r"\]:[^\n]*\n[^\n]"),
}

PARSER = MarkdownIt("commonmark", {"maxNesting": 1000}).enable("table").disable("text_join")  # joined text forgets what was escaped
PARSER.validateLink = lambda url: True  # type: ignore[method-assign]  # which addresses a page may link to is not the question


def seen_by_a_parser(text: str) -> list[int]:
    """The numbers in what the parser calls text."""
    found: dict[int, None] = {}
    for token in PARSER.parse(text):
        for run in runs(token.children or []):
            for match in MARK.finditer(run):
                found.update(dict.fromkeys(int(number) for number in re.findall(r"\d+", match[0])))
    return list(found)


def runs(children: list[Token]) -> Iterator[str]:
    """The stretches of plain text; whatever is not plain text parts them."""
    run, links = "", 0
    for child in children:
        links += {"link_open": 1, "link_close": -1}.get(child.type, 0)
        if child.type == "text" and not links:
            run += child.content
        elif child.type == "text_special" and not links and child.info == "escape":
            run += ESCAPED_BRACKET if child.content == "[" else child.content if child.content.startswith("\\") else "\ue001"
        else:
            yield run
            run = ""
    yield run


# `§` stands for a number that nothing else in the text has.
MARKS = ["[§]", "[§]", "[§]", "[§]", "[§][§]", "[§, §]", "[§，§]", "【§】", "[[§]]", "![§]", "[^§]", "[§](", "[§](/u)", "[§][l]", "[§][]"]
PIECES = [
    *("a", "b c", " ", "  ", "字", "。", "$x", "&amp;", "&#91;", "&", "\t", ":", "=", "x|y", "|", "\\|", "*", "**", "_", "~~", "+", "-"),
    *("`", "`", "``", "```", "````", "\\", "\\\\", "\\`", "\\[", "\\]", "\\!", "\\<", "[", "]", "![", "!", "[[", "]]", "[^", "【", "】"),
    *("](", "](/u)", "](<u>)", "](/u 'T')", '](/u "T")', "](/u (T))", "](<u", "( ", ")", "(", "[l]", "[L]", "[]", "[m]"),
    *("<", "<b>", "</b>", "<b x='", '<b x="', "'", '"', "/>", ">", "<!--", "-->", "<?", "?>", "<!A", "<![CDATA[", "]]>", "<http://x/"),
    *("<a@b.c>", "^"),
]
BEGINNINGS = [
    *("", "", "", "", "", " ", "  ", "   ", "> ", ">", "> > ", "- ", "* ", "+ ", "- - ", "1. ", "2) ", "10. ", "-", "1.", "-     ", "    "),
    *("# ", "## ", "#", "####### ", "```", "````", "~~~", "```py", "   ```", "---", "***", "_ _ _", "===", "--", "<div>", "</div>", "<a>"),
    *("<pre>", "</pre>", "<script>", "</script>", "<!--", "-->", "<?", "?>", "<b x='", "\t", "- \t", "["),
]
CONTENT = st.lists(st.sampled_from([*MARKS, *MARKS, *PIECES]), max_size=7).map("".join)
CELLS = st.lists(
    st.lists(st.sampled_from([*MARKS, "a", " ", "`", "``", "\\|", "\\", "*", "<b", "'", "[", "](u)"]), max_size=3).map("".join), max_size=4
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Lines that begin alike, a few of them or one, perhaps with empty ones between them."""
    beginning = "".join(draw(st.lists(st.sampled_from(BEGINNINGS), max_size=3)))
    between = draw(st.sampled_from(["", "", "\n"]))
    return [beginning + content + between for content in draw(st.lists(CONTENT, min_size=1, max_size=4))]


@st.composite
def tables(draw: st.DrawFn) -> list[str]:
    """A table, perhaps in a quote or an item, with rows too long and too short."""
    first, further = draw(st.sampled_from([("", ""), ("", ""), ("> ", "> "), ("- ", "  ")]))
    columns = draw(st.integers(1, 3))
    head = "|".join("x" + draw(CONTENT.filter(lambda text: "|" not in text)) for _ in range(columns))
    rows = ["|" + "|".join(row) + draw(st.sampled_from(["", "|"])) for row in draw(st.lists(CELLS, max_size=5))]
    return [f"{first}|{head}|", f"{further}|" + "-|" * columns, *(further + row for row in rows), *draw(st.sampled_from([[""], []]))]


DEFINITIONS = st.sampled_from(["[l]: /u", "[L]:\n  <u>\n  'T'", "> [m]: /u", "- [l]: /u (T)"]).map(lambda text: ["", text, ""])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Markdown."""
    parts = draw(st.lists(st.one_of(lines(), lines(), lines(), tables(), DEFINITIONS), min_size=1, max_size=8))
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]))
    text = "\n".join(line for part in parts for line in part).replace("\n", end)
    numbers = count(1)
    return re.sub("§", lambda _: str(next(numbers)), text)


def assume_no_difference(text: str) -> None:
    plain = re.sub(r"\r\n?", "\n", text)
    assume(not any(pattern.search(plain) for pattern in DIFFERENCES.values()))


@settings(max_examples=400, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(texts())
def test_the_scanner_sees_the_numbers_that_a_parser_sees_as_text(text: str) -> None:  # ON-16
    assume_no_difference(text)
    assert cited_numbers(text, NUMBERS) == seen_by_a_parser(text)


@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(texts())
def test_nothing_but_citations_changes_when_an_answer_is_read_again(text: str) -> None:  # ON-13
    cited = cited_numbers(text, NUMBERS)
    named = without_numbers(text, {number: f"⟨{number}⟩" for number in NUMBERS})
    assert [int(number) for number in re.findall(r"\(⟨(\d+)⟩\)", named)] == cited
    # Each number stands once in the text: with the marks of the cited ones taken out, nothing else may differ.
    marks = re.compile(r"[\[【](?:" + "|".join(map(str, cited)) + r")(?:[,，] ?\d+)?[\]】]") if cited else re.compile(r"(?!)")
    assert re.sub(r"\(⟨\d+⟩\)", "", named) == marks.sub("", text)
