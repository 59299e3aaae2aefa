"""The tool `rag.search` within one reply: numbers its sources, bounds them, and says what the model gets to read.

One `SourceBook` serves all calls and rounds of a reply, so that a number means one passage (ON-6) and all texts together stay within
their budget (ON-7).
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from shared.contracts import retrieval
from shared.contracts.retrieval import Filters, Hit, SearchRequest
from shared.messaging.client import Client
from shared.messaging.scope import Scope

SOURCE_CHARACTERS_MAX = 36_000  # ON-7
EXCERPT_CHARACTERS = 300


@dataclass(slots=True)
class Presented:
    """What one call brought: the tool result for the model, and for the client the new citations and what was left out."""

    result: str
    citations: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)


class SourceBook:
    """Numbers from 1 in the order first given; a block is numbered once and its text is sent once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._characters = 0

    def present(self, hits: list[Hit]) -> Presented:
        """Number these hits and put them into words (ON-9)."""
        sources, citations, left_out, again = [], [], [], []
        for hit in hits:
            if (number := self._numbers.get(hit.block_id)) is not None:
                again.append(number)
            elif self._characters + len(hit.text) > SOURCE_CHARACTERS_MAX:
                left_out.append(
                    {"block_id": hit.block_id, "file_path": hit.file_path, "heading_path": hit.heading_path, "reason": "budget"}
                )
            else:
                number = self._numbers[hit.block_id] = len(self._numbers) + 1
                self._characters += len(hit.text)
                sources.append({"number": number, "file_path": hit.file_path, "heading_path": hit.heading_path, "content": hit.text})
                citations.append(_citation(number, hit))
        result: dict[str, Any] = {"sources": sources}
        if again:
            result["already_given"] = sorted(set(again))
        if left_out:
            result["notice"] = f"source_budget_exhausted: {len(left_out)} more passages did not fit and are not shown."
        elif not sources and not again:
            result["notice"] = "Nothing was found for these words."
        return Presented(json.dumps(result, ensure_ascii=False), citations, left_out)


def _citation(number: int, hit: Hit) -> dict[str, Any]:
    excerpt = hit.text if len(hit.text) <= EXCERPT_CHARACTERS else hit.text[:EXCERPT_CHARACTERS] + "…"
    return {
        "number": number,
        "citation_id": hit.citation_id,
        "block_id": hit.block_id,
        "workspace": str(hit.workspace),
        "file_path": hit.file_path,
        "heading_path": hit.heading_path,
        "locator": {"start": hit.start, "end": hit.end, "content_hash": hit.content_hash},
        "excerpt": excerpt,
    }


class Searches:
    """The searches of one reply. The same words are looked up once."""

    def __init__(self, client: Client, filters: Filters) -> None:
        self._client = client
        self._filters = filters
        self._asked: dict[str, asyncio.Task[list[Hit]]] = {}

    async def search(self, words: str, scope: Scope) -> list[Hit]:
        """At most 6 hits within 30 s, under the turn's filters (ON-5).

        Raises:
            ServiceError: the search failed.
        """
        task = self._asked.get(words)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._asked[words] = asyncio.create_task(self._ask(words, scope))
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _ask(self, words: str, scope: Scope) -> list[Hit]:
        request = SearchRequest(query=words, filters=self._filters, limit=retrieval.HITS_PER_SEARCH_MAX)
        reply = await self._client.ask(retrieval.SEARCH, request, scope, timeout=retrieval.SEARCH_SECONDS_MAX)
        return reply.hits
