"""A prepared request, as the Responses API takes it: a question with its evidence in one message, answered by quotes or not at all."""

import json
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from local.demo_model.conversation import Question, Source
from local.demo_model.extract import quotes
from local.demo_model.language import Words, content_words
from local.demo_model.reply import listed

# The instructions say what to reply where the evidence does not suffice.
_FIXED_SENTENCE = re.compile(r"exactly this sentence and nothing else: (.+)")
_NO_EVIDENCE = "I only quote, and nothing in what I was given fits the question."


class Part(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(extra="ignore")
    text: str = ""


class InputMessage(BaseModel):
    """A message of the input."""

    model_config = ConfigDict(extra="ignore")
    content: str | list[Part] = ""

    @property
    def text(self) -> str:
        """The content, its parts joined."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ResponsesRequest(BaseModel):
    """The part of such a request that the demo model heeds."""

    model_config = ConfigDict(extra="ignore")
    model: str
    instructions: str = ""
    input: str | list[InputMessage] = Field(min_length=1)
    max_output_tokens: int | None = None

    @property
    def text(self) -> str:
        """The last message."""
        return self.input if isinstance(self.input, str) else self.input[-1].text


def answer(request: ResponsesRequest) -> str:
    """The sentences of the evidence that answer the question, each with its label; else the sentence that the instructions fix for that."""
    question = _question(request.text)
    found = quotes(question)
    if found:
        return listed(found).strip()
    fixed = _FIXED_SENTENCE.search(request.instructions)
    return fixed[1].strip() if fixed else _NO_EVIDENCE


def _question(text: str) -> Question:
    """The message's JSON object; a text that is none is a question without evidence."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    given = given if isinstance(given, dict) else {"question": text}
    asked, evidence = str(given.get("question", "")), given.get("evidence")
    sources = [source for item in (evidence if isinstance(evidence, list) else []) if (source := _source(item)) is not None]
    nothing = Words((), frozenset())
    return Question(asked, content_words(asked), nothing, can_search=False, searches=(), sources=tuple(sources), mentioned=(), failed=False)


def _source(item: Any) -> Source | None:
    if not isinstance(item, dict) or not isinstance(item.get("label"), str) or not isinstance(item.get("text"), str):
        return None
    title = str(item.get("title") or "")
    return Source(f"[{item['label']}]", title, (title,), item["text"])
