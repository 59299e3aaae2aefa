"""What can be written, as clients and models are told (MD-1): formats with an example each, callouts, limits, how an edit is done.

Without side effects, and without what is the editor's own state (folding, undo, font size): that is no matter of a file. The Markdown of
each example is composed, so the catalog cannot say what the composer does not do.
"""

from typing import Any, Literal

from services.notes.compose import compose
from shared.contracts.markdown import CALLOUT_ALIASES, CalloutName, Catalog, Document, Format, Limits, Preset

type At = Literal["block", "inline", "document"]

_SPEC = {"label": "spec", "target": "Specs/Format.md"}

# Type, where it may stand, what it is, an example. `document` means a field of the document.
_FORMATS: list[tuple[str, list[At], str, Any]] = [
    ("text", ["block", "inline"], "A plain string. Nothing in it is markup; among blocks it is a paragraph.", "2 * 3 < 7, #1"),
    (
        "paragraph",
        ["block"],
        "Its content may have line feeds and breaks, but no blank line.",
        {"type": "paragraph", "content": ["a ", {"type": "bold", "content": "word"}]},
    ),
    ("heading", ["block"], "Level 1 to 6, one line.", {"type": "heading", "level": 2, "content": "Title"}),
    ("bold", ["inline"], "Not within bold.", {"type": "bold", "content": "word"}),
    ("italic", ["inline"], "Not within italic.", {"type": "italic", "content": "word"}),
    ("strikethrough", ["inline"], "Not within strikethrough.", {"type": "strikethrough", "content": "word"}),
    ("code", ["inline"], "One line; two in a row need something between them.", {"type": "code", "text": "a`b"}),
    (
        "link",
        ["inline"],
        "To http, https, mailto, tel or a relative path; no link within.",
        {"type": "link", "target": "Kitchen/My bread.md", "content": "bread"},
    ),
    (
        "reference",
        ["inline"],
        "A link whose target stands in `references` under its label.",
        {"type": "reference", "label": "spec", "content": "the format"},
    ),
    ("image", ["inline"], "In the vault, by relative path.", {"type": "image", "target": "images/oven.png", "alt": "An oven"}),
    ("break", ["inline"], "A new line within a paragraph; not its last node.", {"type": "break"}),
    ("html", ["block", "inline"], "Inline one tag or comment; as a block lines without a blank one.", {"type": "html", "html": "<kbd>"}),
    (
        "list",
        ["block"],
        "Style bullet, ordered (start) or task (checked items); an item is a string or has blocks, nested lists among them.",
        {
            "type": "list",
            "style": "task",
            "items": ["knead", {"checked": True, "blocks": ["buy flour", {"type": "list", "items": ["rye"]}]}],
        },
    ),
    ("quote", ["block"], "Holds blocks.", {"type": "quote", "blocks": ["Said."]}),
    (
        "callout",
        ["block"],
        "A box of a kind, with or without title and blocks; fold: open or closed.",
        {"type": "callout", "kind": "tip", "title": "Steam", "fold": "closed", "blocks": ["Use a tray."]},
    ),
    (
        "code_block",
        ["block"],
        "Lines of code; its fence is longer than any in it.",
        {"type": "code_block", "language": "python", "code": "print(1)"},
    ),
    ("mermaid", ["block"], "A Mermaid diagram.", {"type": "mermaid", "code": "graph TD\n  A --> B"}),
    (
        "math",
        ["block", "inline"],
        "TeX without dollars: inline one line, as a block without blank lines.",
        {"type": "math", "tex": "a^2 + b^2"},
    ),
    (
        "table",
        ["block"],
        "Rows with as many cells as the header; a cell is one line; align: left, center, right or null per column.",
        {"type": "table", "header": ["Flour", "g"], "align": [None, "right"], "rows": [["rye | dark", "500"]]},
    ),
    ("rule", ["block"], "A horizontal rule.", {"type": "rule"}),
    ("references", ["document"], "Targets of reference links, written at the end.", [_SPEC]),
    (
        "front_matter",
        ["document"],
        "YAML: title and tags (without #), at the start of a note.",
        {"title": "Bread", "tags": ["kitchen/bread"]},
    ),
]

# What an account may have switched off, by the preset's field.
_SWITCHED = {"math": "math", "mermaid": "diagrams", "callout": "callouts"}

_RENDERING = [
    "HTML is kept in the file and sanitised where it is shown: scripts, event handlers and frames do not run.",
    "Images are shown from the vault alone; one from elsewhere can only be linked.",
    "Code is shown and never run; where math or diagrams are not drawn their source is shown.",
    "Characters that no editor shows (directions, zero widths) are written as references such as &#8238;, so that a reader sees them.",
]
_EDITING = [
    "Compose the piece; that saves nothing.",
    "Create a note with it, or read the note to change: whole, with its content_hash.",
    "Patch with that content_hash and an old_text that stands exactly once in the note; where either is refused, read again.",
    "A write by a model waits until the user has approved its exact diff.",
]


def catalog(preset: Preset) -> Catalog:
    """The catalog under a preset; what that has switched off is left out (MD-6)."""
    formats = [
        Format(type=kind, at=at, meaning=meaning, example=example, markdown=_example(at, kind, example))
        for kind, at, meaning, example in _FORMATS
        if kind not in _SWITCHED or getattr(preset, _SWITCHED[kind])
    ]
    callouts = [CalloutName(kind=kind, aliases=list(aliases)) for kind, aliases in CALLOUT_ALIASES.items()] if preset.callouts else []
    return Catalog(formats=formats, callouts=callouts, limits=Limits(), rendering=_RENDERING, editing=_EDITING)


def _example(at: list[At], kind: str, example: Any) -> str:
    if "document" in at:
        document = {kind: example}
    elif "block" in at and kind != "html":
        document = {"blocks": [example]}
    else:
        content = ["a", example, "b"] if kind == "break" else ["a ", example, " b"]
        document = {"blocks": [{"type": "paragraph", "content": content}], "references": [_SPEC] if kind == "reference" else []}
    return compose(Document.model_validate(document), Preset())
