"""Markdown that a scanner may stumble over: one thing said over and over, to any length, and whatever makes it look back.

Some shapes end with a citation, so that all that stands before it has to be understood.
"""

from collections.abc import Callable
from itertools import count

Shape = Callable[[int], str]
END = "\n\nSo it is [1]."


def repeated(unit: str, *, begin: str = "", end: str = "") -> Shape:
    """The unit again and again, about so many characters in all."""
    return lambda length: begin + unit * (length // len(unit)) + end


def growing(unit: Callable[[int], str], *, begin: str = "", end: str = "") -> Shape:
    """The unit for 1, 2, 3 and so on."""

    def shape(length: int) -> str:
        parts, numbers, left = [], count(1), length
        while left > 0:
            parts.append(unit(next(numbers))[:left])
            left -= len(parts[-1])
        return begin + "".join(parts) + end

    return shape


PLAIN: dict[str, Shape] = {
    "prose": repeated("Words **and** [links](http://x.y/z), `code`; a claim [1].\n\n- an item [2]\n- some `x[1]`\n\n", end=END),
    "one line of words": repeated("words and more words, ", end="[1]"),
    "lines of words": repeated("words and more words on a line\n", end="[1]"),
}

BRACKETS: dict[str, Shape] = {
    "[": repeated("["),
    "[ and a link": repeated("[", end="](x) [1]"),
    "]": repeated("]"),
    "[] and a link": repeated("[]", end="](x) [1]"),
    "[a and a link": repeated("[a", end="](x) [1]"),
    "![[[[ and a link": repeated("![[[[", end="](x) [1]"),
    "![ and a link": repeated("![", end="](x) [1]"),
    "[[1]]( ": repeated("[[1]]( ", end=END),
    "](": repeated("](", end=END),
    "[a](": repeated("[a](", end=END),
    "[a]( and one )": repeated("[a](", end=")" + END),
    '[a](b "': repeated('[a](b "', end=END),
    "[a](b c)": repeated("[a](b c) [1]"),
    "[a](b)": repeated("[a](b)", end="[1]"),
    "[a [1]](b)": repeated("[a [1]](b)", end=END),
    "[1] and a link": repeated("[1][2]", end="](x)"),
    "[1]: ": repeated("[1]: ", end=END),
    "[1]: on lines": repeated("[1]: \n", end=END),
    "definitions": repeated("[a]: b\n", end=END),
    "[a][b] and a definition": repeated("[a][b]", end="\n\n[x]: y" + END),
    "[b] and its definition": repeated("[b]", end="[1]\n\n[b]: y" + END),
    "[1][2] and a definition": repeated("[1][2]", end="\n\n[2]: y" + END),
    "an open label": repeated("[a\n", end="]: x" + END),
}

MARKS: dict[str, Shape] = {
    "[1]": repeated("[1]", end=" `[2]`"),
    "[1] on lines": repeated("[1]\n", end="`[2]`"),
    "[1] in paragraphs": repeated("[1]\n\n", end="`[2]`"),
    "[9], unknown": repeated("[9]\n", end="[1]"),
    "\\[1]": repeated("\\[1]", end="[1]"),
    "*[1]*": repeated("*[1]*", end="`[2]`"),
    "【": repeated("【", end="[1]"),
    "中文【": repeated("中文【", end="[1]"),
    "中文【1】": repeated("中文【1】", end="`[2]`"),
    "&amp;[1]": repeated("&amp;[1]", end="`[2]`"),
}

INLINE: dict[str, Shape] = {
    "\\": repeated("\\", end="[1]"),
    "*": repeated("*", end="[1]"),
    "_": repeated("_", end="[1]"),
    "&": repeated("&", end="[1]"),
    "`a": repeated("`a", end="[1]"),
    "`[1]`": repeated("`[1]`", end="[1]"),
    "backticks of growing length": growing(lambda length: "`" * length + "[1] "),
    "four backticks around [1], three after": repeated("````[1]``` ", end=END),
    "four backticks around [1]": repeated("````[1]```` ", end=END),
    "<": repeated("<", end="[1]"),
    "<!--": repeated("x<!--", end="[1]"),
    "<?": repeated("x<?", end="[1]"),
    "<!A": repeated("x<!A", end="[1]"),
    "<![CDATA[": repeated("x<![CDATA[", end="[1]"),
    "<a ": repeated("x<a ", end="[1]"),
    '<a b="': repeated('x<a b="', end="[1]"),
    "<a b='<a b=\"": repeated("x<a b='<a b=\"", end="[1]"),
    "an open tag": repeated("a ", begin="x<a ", end="[1]"),
    "<a>": repeated("x<a>", end="[1]"),
    "<a@a.a.a": repeated(".a", begin="x<a@a", end="[1]"),
}

BLOCKS: dict[str, Shape] = {
    "empty lines": repeated("\n", end="[1]"),
    "lines of a space": repeated(" \n", end="[1]"),
    "CR": repeated("[1]\r", end="`[2]`"),
    "CRLF": repeated("[1]\r\n", end="`[2]`"),
    "CR, CRLF, LF": repeated("a\r\n- [1]\r> b\n", end=END),
    "- [1]": repeated("- [1]\n", end="`[2]`"),
    "- `[1]`": repeated("- `[1]`\n", end=END),
    "-": repeated("-\n", end=END),
    "1. x": repeated("1. x\n", end=END),
    "- a, + b, * c": repeated("- a\n+ b\n* c\n", end=END),
    "- a with a second paragraph": repeated("- a\n\n  b\n", end=END),
    "- a, lazily b": repeated("- a\nb\n", end=END),
    "- -": repeated("- ", end="[1]"),
    "- >": repeated("- > ", end="[1]"),
    "lists ever deeper": growing(lambda depth: "  " * depth + "- x\n", end=END),
    "lists 20 deep": growing(lambda depth: "  " * (depth % 20) + "- x\n", end=END),
    ">": repeated(">", end="[1]"),
    "quotes ever deeper": growing(lambda depth: ">" * depth + "x\n", end=END),
    "> [1]": repeated("> [1]\n", end="> `[2]`"),
    "> x": repeated("> x\n", end=END),
    "> alone": repeated(">\n", end=END),
    "> a and an empty line": repeated("> a\n\n", end=END),
    "> - a": repeated("> - a\n", end=END),
    "quote, list": repeated("> a\n- b\n", end=END),
    "# x": repeated("# x\n", end=END),
    "a, ---": repeated("a\n---\n", end=END),
    "a, =": repeated("a\n=\n", end=END),
    "---": repeated("---\n", end=END),
    "a long table": repeated("|[1]|x|\n", begin="|a|b|\n|-|-|\n", end="|`[2]`|"),
    "a long table of code": repeated("|`[1]`|x|\n", begin="|a|b|\n|-|-|\n", end=END),
    "a wide table": lambda length: "|a" * (length // 4) + "\n" + "|-" * (length // 4) + "\n|[1]|",
    "small tables": repeated("|a|\n|-|\n|b|\n\n", end=END),
    "|": repeated("|\n", end=END),
    "|-": repeated("|-\n", end=END),
    "fences": repeated("```\n```\n", end=END),
    "an open fence": repeated("[1]\n", begin="```\n"),
    "fences of growing length": growing(lambda length: "`" * (length + 2) + "\n", end=END),
    "fences in a list": repeated("- ```\n  [1]\n", end=END),
    "a fence in a quote": repeated("> [1]\n", begin="> ```\n", end=END),
    "indented code": repeated("    [1]\n", end="\na [1]"),
    "<div>": repeated("<div>\n\n", end=END),
    "<a> and an empty line": repeated("<a>\n\n", end=END),
    "comments": repeated("<!-- -->\n", end=END),
    "an open comment": repeated("[1]\n", begin="<!--\n"),
    "-, #, >, *": repeated("-\n#\n>\n*\n", end=END),
    "a, -, >, #, |": repeated("a\n-\n>\n#\n|\n", end=END),
    "numbers": repeated("1\n", end="[1]"),
}

SHAPES: dict[str, Shape] = {**PLAIN, **BRACKETS, **MARKS, **INLINE, **BLOCKS}
