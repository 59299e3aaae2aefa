"""The notes that a message mentions, between clients and the conversation: references become lines of it, injections are shown with it."""

from collections.abc import Sequence
from typing import Any

from shared import references
from shared.commonmark.links import destinations
from shared.contracts.chat import MESSAGE_CHARACTERS_MAX
from shared.contracts.contexts import SHOWN
from shared.contracts.errors import ErrorCode, ServiceError
from shared.references import Reference, nfc


def with_references(message: str, lines: str) -> str:
    """The message with the lines of its references behind it; before it, where they would be code there or otherwise no links.

    Raises:
        ServiceError: `too_large`.
    """
    wanted = list(destinations(lines))
    text = f"{message}\n\n{lines}"
    if list(destinations(text))[-len(wanted) :] != wanted:
        text = f"{lines}\n\n{message}"
    if len(text) > MESSAGE_CHARACTERS_MAX:
        why = f"With its references the message has more than {MESSAGE_CHARACTERS_MAX} characters."
        raise ServiceError(ErrorCode.TOO_LARGE, why, limit=MESSAGE_CHARACTERS_MAX)
    return text


def with_cited(injected: Sequence[dict[str, Any]], reply: str) -> list[dict[str, Any]]:
    """Injections as clients see them in a conversation: whether the reply links to their notes."""
    linked = [references.from_destination(destination) for destination in destinations(reply)] if injected else []
    return [{**shown(item), "cited": any(_leads_to(reference, item) for reference in linked if reference is not None)} for item in injected]


def shown(item: dict[str, Any]) -> dict[str, Any]:
    """An injection as clients see it."""
    return {**{name: item[name] for name in SHOWN}, "source": {"kind": "md-notes"}}


def _leads_to(reference: Reference, item: dict[str, Any]) -> bool:
    if nfc(reference.path) != item["root_path"]:
        return False
    if reference.directory is None:
        return not item["ref"].startswith(("../", "/"))
    return nfc(reference.directory) == nfc(item["directory"])
