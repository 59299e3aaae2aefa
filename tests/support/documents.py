"""Generated documents for the Markdown tools: everything that nests, filled with text that looks like Markdown.

They are writable by construction as far as that is simple; what else is refused (a blank line that came about by chance, say) is for the
test to tell.
"""

from typing import Any

from hypothesis import strategies as st

# What begins blocks, delimits inlines, hides, or is taken apart at the ends of lines.
# fmt: off
FRAGMENTS = [
    "#", "# ", "- ", "+ ", "* ", "1. ", "1)", "10. ", "1.", "> ", "---", "***", "___", "===", "-", "+", "=", ":", ":--", "|", "| a |",
    "```", "~~~", "`", "``", "~", "~~", "*", "**", "_", "__", "_a_", "snake_case", "==", "%%", "%", "$", "$$", "$x$", "^", "^id",
    "[", "]", "[[", "]]", "[^1]", "[^1]:", "[x] ", "[ ] ", "[!note] ", "[a](b)", "[a]: b", "(", ")", "!", "![", "#tag", "a#", "C#",
    "<", "<b>", "</b>", "<div>", "<!--", "-->", "<http://a.b>", "https://a.b/c?d=e&copy=1", "&amp;", "&", "#38;", "&#38;",
    "\\", "\\\\", "\\*", "\\|", " ", "  ", "    ", "\t", "\u00a0", "\u3000", "\u200b", "\u202e", "\u200d", "\ufeff", "\u2028", "\u0301",
    "a", "b", "word", "9", "é", "ß", "字", "重点", "。", "，", "（", "）", "“", "”", "€", "😀", "𐄀", ".", '"', "'", "{", "}", "@", "/",
    "http://a.b/~c/", "www.a.b/_",
]
# fmt: on
# fmt: off
TARGETS = [
    "a", "My Note.md", "笔记/甲（一）.md", "a(b", "a)b", "a<b>c", "#part", "https://a.b/c?d=e&amp;f=*g*", "mailto:a@b.c", "a|b",
    "a`b", "a]b", "a_b_c", "x$y",
]
# fmt: on
TITLES = [None, "t", "C:\\\\", 'a "b"', "it's \\ *x*", "a | b", "&lt;", "`"]
LABELS = {"spec": "https://a.b/(c)", "Zwei Wörter": "Note <1>.md", "标签": "笔记.md"}
REFERENCES = [{"label": label, "target": target, "title": None} for label, target in LABELS.items()]
MARKS = ("bold", "italic", "strikethrough")
KINDS = ("note", "tip", "faq")

line_text = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), min_size=1, max_size=6),
)
lines_text = st.lists(line_text, min_size=1, max_size=3).map("\n".join)
code_text = line_text.filter(lambda text: bool(text.strip(" ")))
code_lines = st.lists(st.one_of(st.just(""), line_text, st.sampled_from(["````", "  x", "\ty", "$$", "---"])), max_size=4).map("\n".join)
tex_line = st.sampled_from(["x", "a_1^2", "\\frac{1}{2}", "a*b*c", "x\\ y", "\\{a\\}", "a<b", "a|b", "[x](y)", "# x"])
tag = st.sampled_from(["<b>", "</b>", "<kbd>", "<br/>", '<a title="x|y">', "<!-- c -->"])
html_lines = st.sampled_from(["<div>\n*a*\n  b\n</div>", "<!-- c -->", "<b>\n# x", '<p class="x">\ttext</p>', "<pre>\n  a\n</pre>", "<hr>"])


@st.composite
def contents(draw: st.DrawFn, *, several: bool = False, within: frozenset[str] = frozenset(), depth: int = 3) -> Any:
    """A content: a text, or a list of inline nodes."""
    text = lines_text if several else line_text
    if draw(st.booleans()):
        return draw(text)
    kinds = ["text", "text", "code", "math", "image", "html", *(["break"] if several else [])]
    if depth:
        marks = [kind for kind in MARKS if kind not in within]
        kinds += 2 * [*marks, *(["link", "reference"] if "link" not in within else [])]
    nodes: list[Any] = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)):
        nodes += [draw(_inline(kind, text, several, within, depth)), *(draw(st.sampled_from([[], [""], ["字"], [" "]])))]
    return nodes


def _inline(kind: str, text: st.SearchStrategy[str], several: bool, within: frozenset[str], depth: int) -> st.SearchStrategy[Any]:
    if kind in MARKS:
        return st.builds(
            lambda content: {"type": kind, "content": content}, contents(several=several, within=within | {kind}, depth=depth - 1)
        )
    if kind in ("link", "reference"):
        inner = contents(several=several, within=within | {"link"}, depth=depth - 1)
        if kind == "reference":
            return st.fixed_dictionaries({"type": st.just(kind), "label": st.sampled_from(list(LABELS)), "content": inner})
        target, title = st.sampled_from(TARGETS), st.sampled_from(TITLES)
        return st.fixed_dictionaries({"type": st.just(kind), "target": target, "title": title, "content": inner})
    return {
        "text": text,
        "code": st.builds(lambda code: {"type": "code", "text": code}, code_text),
        "math": st.builds(lambda tex: {"type": "math", "tex": tex}, tex_line),
        "image": st.builds(
            lambda target, alt, title: {"type": "image", "target": target, "alt": alt, "title": title},
            st.sampled_from([target for target in TARGETS if ":" not in target]),
            line_text,
            st.sampled_from(TITLES),
        ),
        "html": st.builds(lambda html: {"type": "html", "html": html}, tag),
        "break": st.just({"type": "break"}),
    }[kind]


@st.composite
def blocks(draw: st.DrawFn, *, depth: int = 3) -> Any:
    """Neighbouring blocks."""
    kinds = ["text", "paragraph", "heading", "code_block", "mermaid", "math", "table", "rule", "html"]
    if depth:
        kinds += ["list", "list", "quote", "callout"] * 2
    return [draw(_block(kind, depth)) for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))]


def _block(kind: str, depth: int) -> st.SearchStrategy[Any]:
    inner = blocks(depth=depth - 1) if depth else st.nothing()
    match kind:
        case "text":
            return lines_text
        case "paragraph":
            return st.fixed_dictionaries({"type": st.just(kind), "content": contents(several=True)})
        case "heading":
            return st.fixed_dictionaries({"type": st.just(kind), "level": st.integers(1, 6), "content": contents()})
        case "list":
            return lists(depth)
        case "quote":
            return st.fixed_dictionaries({"type": st.just(kind), "blocks": inner})
        case "callout":
            title, fold = st.none() | contents(), st.sampled_from([None, "open", "closed"])
            body = st.just([]) | inner
            return st.fixed_dictionaries(
                {"type": st.just(kind), "kind": st.sampled_from(KINDS), "title": title, "fold": fold, "blocks": body}
            )
        case "table":
            return tables()
    return {
        "code_block": st.fixed_dictionaries(
            {"type": st.just(kind), "code": code_lines, "language": st.sampled_from([None, "python", "c++", "objective-c"])}
        ),
        "mermaid": st.fixed_dictionaries({"type": st.just(kind), "code": code_lines}),
        "math": st.fixed_dictionaries({"type": st.just(kind), "tex": st.lists(tex_line, min_size=1, max_size=3).map("\n".join)}),
        "rule": st.just({"type": "rule"}),
        "html": st.fixed_dictionaries({"type": st.just(kind), "html": html_lines}),
    }[kind]


@st.composite
def lists(draw: st.DrawFn, depth: int) -> Any:
    """A list of any style."""
    style = draw(st.sampled_from(["bullet", "ordered", "task"]))
    start = draw(st.sampled_from([None, 0, 1, 7, 998])) if style == "ordered" else None
    items: list[Any] = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            items.append(draw(lines_text))
            continue
        inner = draw(blocks(depth=depth - 1))
        if style == "task":
            first = {"type": "paragraph", "content": draw(contents(several=True))}
            items.append({"blocks": [first, *inner], "checked": draw(st.sampled_from([None, True, False]))})
        else:
            items.append({"blocks": inner})
    return {"type": "list", "style": style, "start": start, "items": items}


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """A table of equal columns."""
    columns = draw(st.integers(1, 3))
    row = st.lists(st.just("") | contents(depth=1), min_size=columns, max_size=columns)
    align = st.none() | st.lists(st.sampled_from([None, "left", "center", "right"]), min_size=columns, max_size=columns)
    return {"type": "table", "header": draw(row), "rows": draw(st.lists(row, max_size=3)), "align": draw(align)}
