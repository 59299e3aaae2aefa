"""What the demo model reads out of a chat completion request: the question, its topic, and the sources found so far."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from local.demo_model.language import Words, content_words, points_back

SEARCH_TOOL = "rag_search"
_EARLIER_WORDS = 6
_LINK = re.compile(r"\[(?:[^\[\]\\]|\\.)*\]\((?:[^()\\]|\\.)*\)")
# A reference as a chat message carries it.
_REFERENCE = re.compile(r"^(?:Referenced note|引用笔记) \[.*\]\(.*\)$", re.MULTILINE)


class Function(BaseModel):
    """A function the caller offers, or one the model called."""

    model_config = ConfigDict(extra="ignore")
    name: str = ""
    arguments: str | dict[str, Any] | None = None


class Tool(BaseModel):
    """A tool the caller offers."""

    model_config = ConfigDict(extra="ignore")
    function: Function = Function()


class ToolCall(BaseModel):
    """A call that the model made earlier."""

    model_config = ConfigDict(extra="ignore")
    function: Function = Function()


class ChatMessage(BaseModel):
    """A message of the conversation, as the OpenAI API has it."""

    model_config = ConfigDict(extra="ignore")
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def text(self) -> str:
        """The content, its parts joined."""
        if isinstance(self.content, list):
            return "".join(part["text"] for part in self.content if isinstance(part.get("text"), str))
        return self.content or ""


class StreamOptions(BaseModel):
    """What a stream shall hold besides."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class ChatRequest(BaseModel):
    """The part of a chat completion request that the demo model heeds."""

    model_config = ConfigDict(extra="ignore")
    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[Tool] | None = None
    tool_choice: Any = None
    stream: bool = False
    stream_options: StreamOptions | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A passage of the user's notes. `mark` is how the caller wants it cited: its number, or a link for a note that was mentioned."""

    mark: str
    file_path: str
    heading_path: tuple[str, ...]
    content: str


@dataclass(frozen=True, slots=True)
class Question:
    """What to answer, and from what.

    `words` are its own, `earlier` those of the question before where this one points back to it. `mentioned` are the notes that came
    with the question, `searches` the queries made for this reply and `sources` what they found; `failed` says that one did not work.
    """

    text: str
    words: Words
    earlier: Words
    can_search: bool
    searches: tuple[str, ...]
    sources: tuple[Source, ...]
    mentioned: tuple[Source, ...]
    failed: bool


def read(request: ChatRequest) -> Question:
    """The last user message and all that came after it."""
    parted = {at: _parted(message.text) for at, message in enumerate(request.messages) if message.role == "user"}
    users = [at for at, (_, own) in parted.items() if own]
    asked = users[-1] if users else len(request.messages) - 1
    text = _without_references(parted[asked][1] if users else request.messages[asked].text)
    before = [_without_references(parted[at][1]) for at in users[:-1]]
    with_it = [sources for at, (sources, _) in parted.items() if (users[-2] if len(users) > 1 else -1) < at <= asked]
    since = request.messages[asked + 1 :]
    words = content_words(text)
    results = [_object(message.text) for message in since if message.role == "tool"]
    offered = any(tool.function.name == SEARCH_TOOL for tool in request.tools or [])
    return Question(
        text=text,
        words=words,
        earlier=_earlier(text, words, before),
        can_search=offered and request.tool_choice != "none",
        searches=tuple(_queries(since)),
        sources=tuple(_sources(results)),
        mentioned=tuple(source for sources in with_it for source in sources),
        failed=any("sources" not in result for result in results),
    )


def _without_references(text: str) -> str:
    return _LINK.sub(lambda link: link[0][1:].partition("](")[0], _REFERENCE.sub("", text)).strip()


def _parted(text: str) -> tuple[list[Source], str]:
    """A user's message: the notes that the caller put before it, each with a blank line after it, and the user's own words."""
    sources = []
    while "\n{" in text:
        note, _, rest = text.partition("\n\n")
        source = _mentioned(note)
        if source is None:
            break
        sources.append(source)
        text = rest
    return sources, text


def _mentioned(text: str) -> Source | None:
    """A note that the caller put before the question: a line of JSON after the link to cite it by."""
    intro, _, body = text.rpartition("\n")
    link = _LINK.search(intro)
    if link is None or not body.startswith("{"):
        return None
    note = _object(body)
    title, path, content = note.get("title"), note.get("path"), note.get("text")
    if not isinstance(title, str) or not isinstance(path, str) or not isinstance(content, str):
        return None
    return Source(link[0], path, (title,), content)


def _earlier(text: str, words: Words, before: Sequence[str]) -> Words:
    if words.spoken and not points_back(text):
        return Words((), frozenset())
    found = (content_words(earlier) for earlier in reversed(before))
    topic = next((found_words for found_words in found if found_words.spoken), Words((), frozenset()))
    spoken = tuple(word for word in topic.spoken if word not in words.spoken)[:_EARLIER_WORDS]
    return Words(spoken, topic.terms - words.terms)


def _queries(messages: Sequence[ChatMessage]) -> list[str]:
    calls = [call.function for message in messages for call in message.tool_calls or []]
    return [str(_object(call.arguments).get("query", "")) for call in calls if call.name == SEARCH_TOOL]


def _sources(results: Sequence[dict[str, Any]]) -> list[Source]:
    found: dict[str, Source] = {}
    for result in results:
        listed = result.get("sources")
        for entry in listed if isinstance(listed, list) else []:
            if (source := _source(entry)) is not None:
                found.setdefault(source.mark, source)
    return list(found.values())


def _source(entry: Any) -> Source | None:
    """A source with a text; one that is only referred to again has none, one of an earlier reply no number."""
    if not isinstance(entry, dict):
        return None
    number, content, headings = entry.get("number"), entry.get("content"), entry.get("heading_path")
    if not isinstance(number, int) or isinstance(number, bool) or not isinstance(content, str):
        return None
    path = tuple(str(heading) for heading in headings) if isinstance(headings, list) else ()
    return Source(f"[{number}]", str(entry.get("file_path", "")), path, content)


def _object(value: str | dict[str, Any] | None) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    try:
        parsed = json.loads(value or "{}")
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
