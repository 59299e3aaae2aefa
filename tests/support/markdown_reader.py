"""What a Markdown parser makes of a text, as the same kind of tree that documents are: the oracle for what is composed.

markdown-it-py with its tables and strikethrough; math, task boxes and callouts, which it lacks, are read here by their own rules. Shares no
code with what writes. `canonical` brings a document to the form in which the two can be compared.
"""

import re
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.tree import SyntaxTreeNode

BOX = re.compile(r"\[([ x])\] ")
CALLOUT = re.compile(r"\[!([a-z]+)\]([+-]?)(?: (?=\S)|(?=\n)|$)")
MARKS = {"strong": "bold", "em": "italic", "s": "strikethrough"}


def _inline_math(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] != "$":
        return False
    end = state.src.find("$", state.pos + 1)
    tex = state.src[state.pos + 1 : end]
    if end < 0 or not tex or tex != tex.strip() or "\n" in tex or state.src[end + 1 : end + 2].isdigit():
        return False
    if not silent:
        state.push("math", "", 0).content = tex
    state.pos = end + 1
    return True


def _block_math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    def line(number: int) -> str:
        return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]

    if line(start) != "$$" or state.is_code_block(start):
        return False
    close = next((number for number in range(start + 1, end) if line(number) == "$$"), None)
    if close is None:
        return False
    if not silent:
        state.push("block_math", "", 0).content = state.getLines(start + 1, close, state.sCount[start], False)
    state.line = close + 1
    return True


def _reader() -> MarkdownIt:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    markdown.inline.ruler.before("escape", "math", _inline_math)
    markdown.block.ruler.before("fence", "block_math", _block_math, {"alt": ["paragraph", "blockquote", "list"]})
    markdown.normalizeLink = lambda url: url  # type: ignore[method-assign]
    return markdown


_markdown = _reader()


def read(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The blocks of a text, and its link definitions by label (as parsers compare them)."""
    env: dict[str, Any] = {}
    tree = SyntaxTreeNode(_markdown.parse(text, env))
    return _blocks(tree.children), env.get("references", {})


def _blocks(nodes: list[SyntaxTreeNode]) -> list[Any]:
    return [_block(node) for node in nodes]


def _block(node: SyntaxTreeNode) -> Any:
    match node.type:
        case "paragraph":
            return {"type": "paragraph", "content": _content(node)}
        case "heading":
            return {"type": "heading", "level": int(node.tag[1]), "content": _content(node)}
        case "bullet_list" | "ordered_list":
            return _list(node)
        case "blockquote":
            return _quote(node)
        case "fence":
            code = node.content.removesuffix("\n")
            return (
                {"type": "mermaid", "code": code} if node.info == "mermaid" else {"type": "code_block", "code": code, "language": node.info}
            )
        case "block_math":
            return {"type": "math", "tex": node.content.removesuffix("\n")}
        case "table":
            rows = [row for part in node.children for row in part.children]
            header, *body = [[_content(cell) for cell in row.children] for row in rows]
            align = [str(cell.attrs["style"]).removeprefix("text-align:") if cell.attrs else None for cell in rows[0].children]
            return {"type": "table", "header": header, "rows": body, "align": align}
        case "hr":
            return {"type": "rule"}
        case "html_block":
            return {"type": "html", "html": node.content.removesuffix("\n")}
    raise AssertionError(f"not expected: {node.type}")


def _raw(node: SyntaxTreeNode) -> str:
    """A paragraph as it was written; escapes are still there."""
    return node.children[0].content if node.type == "paragraph" else ""


def _list(node: SyntaxTreeNode) -> Any:
    boxes = [BOX.match(_raw(item.children[0])) if item.children else None for item in node.children]
    items = []
    for item, box in zip(node.children, boxes, strict=True):
        blocks = _blocks(item.children)
        if box:
            blocks[0]["content"] = _without(blocks[0]["content"], len(box[0]))
        items.append({"blocks": blocks, "checked": None if box is None else box[1] == "x"})
    if node.type == "ordered_list":
        return {"type": "list", "style": "ordered", "start": node.attrs.get("start", 1), "items": items}
    return {"type": "list", "style": "task" if any(boxes) else "bullet", "start": None, "items": items}


def _quote(node: SyntaxTreeNode) -> Any:
    blocks = _blocks(node.children)
    mark = CALLOUT.match(_raw(node.children[0])) if node.children else None
    if mark is None:
        return {"type": "quote", "blocks": blocks}
    head, body = _first_line(_without(blocks[0]["content"], len(mark[0])))
    rest = [{"type": "paragraph", "content": body}] if body is not None else []
    fold = {"": None, "+": "open", "-": "closed"}[mark[2]]
    return {"type": "callout", "kind": mark[1], "fold": fold, "title": head or None, "blocks": [*rest, *blocks[1:]]}


def _without(content: list[Any], length: int) -> list[Any]:
    first, *rest = content
    assert isinstance(first, str)
    assert len(first) >= length
    return [first[length:], *rest] if first[length:] else rest


def _first_line(content: list[Any]) -> tuple[list[Any], list[Any] | None]:
    for position, node in enumerate(content):
        if isinstance(node, str) and "\n" in node:
            before, _, after = node.partition("\n")
            return [*content[:position], *([before] if before else [])], [*([after] if after else []), *content[position + 1 :]]
    return content, None


def _content(node: SyntaxTreeNode) -> list[Any]:
    return _joined([_inline(child) for inline in node.children for child in inline.children])


def _inline(node: SyntaxTreeNode) -> Any:
    match node.type:
        case "text" | "text_special":
            return node.content
        case "softbreak":
            return "\n"
        case "hardbreak":
            return {"type": "break"}
        case "strong" | "em" | "s":
            return {"type": MARKS[node.type], "content": _joined([_inline(child) for child in node.children])}
        case "code_inline":
            return {"type": "code", "text": node.content}
        case "math":
            return {"type": "math", "tex": node.content}
        case "html_inline":
            return {"type": "html", "html": node.content}
        case "link":
            content = _joined([_inline(child) for child in node.children])
            return {"type": "link", "target": node.attrs["href"], "title": node.attrs.get("title"), "content": content}
        case "image":
            alt = _joined([_inline(child) for child in node.children])
            assert all(isinstance(one, str) for one in alt)
            return {"type": "image", "target": node.attrs["src"], "title": node.attrs.get("title"), "alt": "".join(alt)}
    raise AssertionError(f"not expected: {node.type}")


def _joined(nodes: list[Any]) -> list[Any]:
    """Neighbouring texts are one text, and neighbours of one emphasis are one."""
    joined: list[Any] = []
    for node in nodes:
        if node == "":
            continue
        last = joined[-1] if joined else None
        if isinstance(node, str) and isinstance(last, str):
            joined[-1] = last + node
        elif isinstance(node, dict) and isinstance(last, dict) and node["type"] == last["type"] and node["type"] in MARKS.values():
            joined[-1] = {**last, "content": _joined([*last["content"], *node["content"]])}
        else:
            joined.append(node)
    return joined


def canonical(blocks: list[Any], references: list[Any]) -> list[Any]:
    """A document's blocks, as JSON, in the form that `read` gives: every shorthand written out, references as the links they are."""
    return _Canon({one["label"]: one for one in references}).blocks(blocks)


class _Canon:
    def __init__(self, references: dict[str, Any]) -> None:
        self._references = references

    def blocks(self, blocks: list[Any]) -> list[Any]:
        return [self._block(block) for block in blocks]

    def _block(self, block: Any) -> Any:
        if isinstance(block, str):
            return {"type": "paragraph", "content": self._content(block)}
        match block["type"]:
            case "paragraph" | "heading":
                return {**block, "content": self._content(block["content"])}
            case "list":
                return self._list(block)
            case "quote":
                return {**block, "blocks": self.blocks(block["blocks"])}
            case "callout":
                title = block.get("title")
                return {
                    "fold": None,
                    **block,
                    "title": None if title is None else self._content(title),
                    "blocks": self.blocks(block.get("blocks", [])),
                }
            case "code_block":
                return {**block, "language": block.get("language") or ""}
            case "table":
                header = [self._content(cell) for cell in block["header"]]
                rows = [[self._content(cell) for cell in row] for row in block.get("rows", [])]
                return {**block, "header": header, "rows": rows, "align": block.get("align") or [None] * len(header)}
            case _:
                return block

    def _list(self, block: Any) -> Any:
        style = block.get("style", "bullet")
        items = [{"blocks": [item]} if isinstance(item, str) else item for item in block["items"]]
        start = (1 if block.get("start") is None else block["start"]) if style == "ordered" else None
        written = [
            {"blocks": self.blocks(item["blocks"]), "checked": bool(item.get("checked")) if style == "task" else None} for item in items
        ]
        return {"type": "list", "style": style, "start": start, "items": written}

    def _content(self, content: Any) -> list[Any]:
        return _joined([self._inline(node) for node in ([content] if isinstance(content, str) else content)])

    def _inline(self, node: Any) -> Any:
        if isinstance(node, str):
            return node
        match node["type"]:
            case "bold" | "italic" | "strikethrough":
                return {**node, "content": self._content(node["content"])}
            case "link":
                return {"title": None, **node, "content": self._content(node["content"])}
            case "reference":
                found = self._references[node["label"]]
                title = found.get("title")
                return {"type": "link", "target": found["target"], "title": title, "content": self._content(node["content"])}
            case "image":
                return {"title": None, "alt": "", **node}
            case _:
                return node
