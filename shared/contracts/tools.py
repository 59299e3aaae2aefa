"""The tools that a model may be offered, by the agent or at the gateway's MCP door: their names, what they are for, what they take.

The user's consent to each write is another matter (MD-5).
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.markdown import Document

SEARCH = "rag.search"
READ = "notes.read"
CATALOG = "markdown.catalog"
COMPOSE = "markdown.compose"
PATCH = "notes.patch_markdown"
# What one call reads of a note; a longer one comes in parts.
READ_CHARACTERS_MAX = 60_000

Path = Annotated[str, Field(min_length=1, max_length=1000, description="The note's path as the tools give it, e.g. Kitchen/Bread.md")]
Workspace = Annotated[str, Field(description="A workspace's directory name, where it is another one than the conversation's")]


class Arguments(BaseModel):
    """What a call may say: nothing coerced, nothing unknown."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SearchArguments(Arguments):
    """Of `rag.search`."""

    query: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"\S", description="Words to look for")]


class FindArguments(Arguments):
    """Of `notes.search`."""

    query: Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S", description="Words of titles, paths, tags or texts")]
    workspace: Workspace | None = None


class ReadArguments(Arguments):
    """Of `notes.read`."""

    path: Path
    workspace: Workspace | None = None
    offset: Annotated[int, Field(ge=0, description="Where to go on in a note that did not fit: its next_offset")] = 0


class CreateArguments(Arguments):
    """Of `notes.create`."""

    path: Path
    content: Annotated[str, Field(description="The whole text of the note")]
    workspace: Workspace | None = None


class PatchArguments(Arguments):
    """Of `notes.patch_markdown`."""

    path: Path
    content_hash: Annotated[str, Field(description="Of the version that was read")]
    old_text: Annotated[str, Field(min_length=1, description="Stands exactly once in the note, character by character")]
    new_text: Annotated[str, Field(description="What is to stand there instead")]
    workspace: Workspace | None = None


class AppendArguments(Arguments):
    """Of `notes.append`."""

    path: Path
    text: Annotated[str, Field(pattern=r"\S", description="Markdown to stand at the end as a block of its own")]
    workspace: Workspace | None = None


# The nodes of a document are the catalog's to explain: the whole schema would be longer than most conversations.
_DOCUMENT = {
    "type": "object",
    "properties": {
        "blocks": {
            "type": "array",
            "items": {},
            "description": 'Strings (paragraphs) and nodes such as {"type": "heading", "level": 2, "content": "Title"}',
        },
        "front_matter": {"type": "object", "description": '{"title": "…", "tags": ["…"]}, for a whole note'},
        "references": {"type": "array", "items": {}, "description": '[{"label": "…", "target": "…"}]'},
    },
    "required": ["blocks"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `arguments` is what a call is checked against; `writes`: it changes a note, which needs the user's consent each time."""

    name: str
    description: str
    arguments: type[BaseModel]
    writes: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """Of the arguments, as JSON Schema."""
        return _schema(self.arguments)


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            SEARCH,
            "Search the user's own notes. Returns numbered passages. Use the words you expect to stand in the notes, in the language of "
            "the notes.",
            SearchArguments,
        ),
        Tool(
            "notes.search",
            "Find notes by title, path, tags and content. Returns which notes there are, with their paths, not what they say.",
            FindArguments,
        ),
        Tool(
            READ,
            "Read a note: its raw text and its content_hash. A long one comes in parts.",
            ReadArguments,
        ),
        Tool(
            CATALOG,
            "What can be written in notes, with an example of each node that markdown_compose takes.",
            Arguments,
        ),
        Tool(
            COMPOSE,
            "Markdown from structure, correctly escaped and nested. Saves nothing. markdown_catalog shows the nodes.",
            Document,
        ),
        Tool(
            "notes.create",
            "Create a note where none is. The user sees it first and may reject it.",
            CreateArguments,
            writes=True,
        ),
        Tool(
            PATCH,
            "Replace one place in a note that you have read. The user sees the change first and may reject it.",
            PatchArguments,
            writes=True,
        ),
        Tool(
            "notes.append",
            "Add text at the end of a note, which is created where it is missing. The user sees the change first and may reject it.",
            AppendArguments,
            writes=True,
        ),
    )
}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema in the words that every provider reads: an optional argument may be absent, not null."""
    if model is Document:
        return _DOCUMENT
    properties = {}
    for name, schema in model.model_json_schema().get("properties", {}).items():
        plain = next((one for one in schema.get("anyOf", []) if one != {"type": "null"}), schema)
        properties[name] = {key: value for key, value in plain.items() if key not in ("title", "default", "pattern")}
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
