"""The Markdown tools: what can be written, and Markdown made from structure. Served by notes; neither reads nor saves anything.

`Document` is a tree of nodes as the body of an HTTP request or the parameters of a tool carry it. A string stands for text: among
blocks it is a paragraph, in a node's content a run of text. Unknown nodes and fields are refused, unlike in other messages, because
a document comes from outside and what is not understood would be missing from a note.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from shared.contracts.subject import Message, Query

# What a document may have: nodes (texts, list items and table cells count), nodes within each other, characters in all its strings.
NODES_MAX = 10_000
DEPTH_MAX = 12
CHARACTERS_MAX = 200_000
# What may come out: prefixes of quotes and lists are repeated on each line.
MARKDOWN_BYTES_MAX = 1024 * 1024

# fmt: off
CalloutKind = Literal[
    "note", "abstract", "info", "todo", "tip", "success", "question", "warning", "failure", "danger", "bug", "example", "quote",
]
CalloutAlias = Literal[
    "summary", "tldr", "hint", "important", "check", "done", "help", "faq", "caution", "attention", "fail", "missing", "error", "cite",
]
# fmt: on
CALLOUT_ALIASES: dict[CalloutKind, tuple[CalloutAlias, ...]] = {
    "note": (),
    "abstract": ("summary", "tldr"),
    "info": (),
    "todo": (),
    "tip": ("hint", "important"),
    "success": ("check", "done"),
    "question": ("help", "faq"),
    "warning": ("caution", "attention"),
    "failure": ("fail", "missing"),
    "danger": ("error",),
    "bug": (),
    "example": (),
    "quote": ("cite",),
}


class Node(BaseModel):
    """Base of what a document is made of: nothing coerced, nothing unknown."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "list of nodes"
    kind = value.get("type", "object") if isinstance(value, dict) else getattr(value, "type", "object")
    return kind if isinstance(kind, str) else None


_NODE = Discriminator(
    _kind,
    custom_error_type="node",
    custom_error_message="there is no such node here; the catalog names those that there are",
)


class Bold(Node):
    """Bold."""

    type: Literal["bold"]
    content: "Content"


class Italic(Node):
    """Italic."""

    type: Literal["italic"]
    content: "Content"


class Strikethrough(Node):
    """Struck through."""

    type: Literal["strikethrough"]
    content: "Content"


class Code(Node):
    """Inline code, one line."""

    type: Literal["code"]
    text: str


class Math(Node):
    """TeX without its dollars: in a content inline and one line, among blocks a displayed formula."""

    type: Literal["math"]
    tex: str


class Link(Node):
    """A link to http(s), mailto, tel or a relative path."""

    type: Literal["link"]
    target: str
    content: "Content"
    title: str | None = None


class ReferenceLink(Node):
    """A link whose target stands in the document's `references`."""

    type: Literal["reference"]
    label: str
    content: "Content"


class Image(Node):
    """An image in the vault, by relative path; `alt` says what it shows."""

    type: Literal["image"]
    target: str
    alt: str = ""
    title: str | None = None


class HardBreak(Node):
    """A new line within a paragraph."""

    type: Literal["break"]


class Html(Node):
    """In a content one tag or comment; among blocks lines of HTML, none of them blank."""

    type: Literal["html"]
    html: str


type Inline = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[Bold, Tag("bold")]
    | Annotated[Italic, Tag("italic")]
    | Annotated[Strikethrough, Tag("strikethrough")]
    | Annotated[Code, Tag("code")]
    | Annotated[Math, Tag("math")]
    | Annotated[Link, Tag("link")]
    | Annotated[ReferenceLink, Tag("reference")]
    | Annotated[Image, Tag("image")]
    | Annotated[HardBreak, Tag("break")]
    | Annotated[Html, Tag("html")],
    _NODE,
]
type Content = Annotated[Annotated[str, Tag("text")] | Annotated[list[Inline], Tag("list of nodes")], _NODE]


class Paragraph(Node):
    """A paragraph; a line feed in its text is a soft line break."""

    type: Literal["paragraph"]
    content: Content


class Heading(Node):
    """A heading, one line."""

    type: Literal["heading"]
    level: Annotated[int, Field(ge=1, le=6)]
    content: Content


class ListItem(Node):
    """An item; nested lists are among its `blocks`. `checked` in task lists only."""

    blocks: "list[Block]"
    checked: bool | None = None


class ItemList(Node):
    """A list; `start` in ordered ones only."""

    type: Literal["list"]
    style: Literal["bullet", "ordered", "task"] = "bullet"
    start: Annotated[int, Field(ge=0, le=999_999_999)] | None = None
    items: list[Annotated[Annotated[str, Tag("text")] | Annotated[ListItem, Tag("object")], _NODE]]


class Quote(Node):
    """A quotation."""

    type: Literal["quote"]
    blocks: "list[Block]"


class Callout(Node):
    """A callout; with `fold` it can be folded, and is at first open or closed."""

    type: Literal["callout"]
    kind: CalloutKind | CalloutAlias
    title: Content | None = None
    fold: Literal["open", "closed"] | None = None
    blocks: "list[Block]" = []


class CodeBlock(Node):
    """Lines of code."""

    type: Literal["code_block"]
    code: str
    language: str | None = None


class Mermaid(Node):
    """A Mermaid diagram."""

    type: Literal["mermaid"]
    code: str


class Table(Node):
    """A table; every row has as many cells as the header, and `align`, if given, as many entries."""

    type: Literal["table"]
    header: list[Content]
    rows: list[list[Content]] = []
    align: list[Literal["left", "center", "right"] | None] | None = None


class Rule(Node):
    """A horizontal rule."""

    type: Literal["rule"]


type Block = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[Paragraph, Tag("paragraph")]
    | Annotated[Heading, Tag("heading")]
    | Annotated[ItemList, Tag("list")]
    | Annotated[Quote, Tag("quote")]
    | Annotated[Callout, Tag("callout")]
    | Annotated[CodeBlock, Tag("code_block")]
    | Annotated[Mermaid, Tag("mermaid")]
    | Annotated[Math, Tag("math")]
    | Annotated[Table, Tag("table")]
    | Annotated[Rule, Tag("rule")]
    | Annotated[Html, Tag("html")],
    _NODE,
]


class FrontMatter(Node):
    """A note's title and tags (without `#`)."""

    title: str | None = None
    tags: list[str] = []


class Reference(Node):
    """Where reference links with this label lead."""

    label: str
    target: str
    title: str | None = None


class Document(Node):
    """A note or a piece of one, as a tree. A string among blocks is a paragraph, a string as content is text."""

    blocks: list[Block] = []
    front_matter: FrontMatter | None = None
    references: list[Reference] = []


class Preset(Message):
    """Which syntax an account has switched on (MD-6)."""

    math: bool = True
    diagrams: bool = True
    callouts: bool = True


class Compose(Message):
    """What to write, and what may be used for it."""

    document: Document
    preset: Preset = Preset()


class Composed(Message):
    """Markdown that reads as the document; it ends in a line feed, and nothing of it is saved."""

    markdown: str


class CatalogRequest(Message):
    """For whom the catalog is."""

    preset: Preset = Preset()


class Format(Message):
    """One thing that can be written.

    Attributes:
        at: where a node of it may stand.
        meaning: what it is, and what it may not hold.
        example: a node, or for `document` the field, as `Document` takes it.
        markdown: what is made of the example.
    """

    type: str
    at: list[Literal["block", "inline", "document"]]
    meaning: str
    example: JsonValue
    markdown: str


class CalloutName(Message):
    """A kind of callout and its other names, which look the same."""

    kind: CalloutKind
    aliases: list[CalloutAlias]


class Limits(Message):
    """The most that one document may have."""

    nodes: int = NODES_MAX
    depth: int = DEPTH_MAX
    characters: int = CHARACTERS_MAX
    markdown_bytes: int = MARKDOWN_BYTES_MAX


class Catalog(Message):
    """What can be written under a preset.

    Attributes:
        callouts: empty where callouts are off.
        rendering: what happens to it when it is shown.
        editing: how a note gets it, step by step.
    """

    formats: list[Format]
    callouts: list[CalloutName]
    limits: Limits
    rendering: list[str]
    editing: list[str]


CATALOG = Query("notes.markdown.catalog", CatalogRequest, Catalog, owner="notes", askers=("gateway", "agent"))
COMPOSE = Query("notes.markdown.compose", Compose, Composed, owner="notes", askers=("gateway", "agent"))
