"""Which tools a turn offers, and what they are called there.

In chat mode there is `rag.search` alone (ON-3); in agent mode also the tools for Markdown and notes (MD-1 to MD-4), of which those that
write must be named by the request. What they do is in `toolbox`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from shared.contracts.chat import Mode
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.tools import SEARCH, TOOLS, Tool


def wire_name(tool: Tool) -> str:
    """OpenAI admits letters, digits, `_` and `-` in names; ours have dots (ON-3)."""
    return tool.name.replace(".", "_")


def offered(tool: Tool) -> dict[str, Any]:
    """As a request to a model says it."""
    function = {"name": wire_name(tool), "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


_BY_WIRE_NAME = {wire_name(tool): tool.name for tool in TOOLS.values()}


def our_name(wire_name: str) -> str:
    """A tool's own name; what is none of ours keeps its name."""
    return _BY_WIRE_NAME.get(wire_name, wire_name)


def chosen(mode: Mode, allowed: Sequence[str] | None, *, searching: bool) -> list[Tool]:
    """The tools of a turn. In chat mode `allowed` has no say: nothing but the search is ever run there (ON-3).

    Raises:
        ServiceError: `invalid`, for a name that no tool has.
    """
    if mode == "agent" and (unknown := sorted(set(allowed or ()) - TOOLS.keys())):
        raise ServiceError(ErrorCode.INVALID, f"There is no tool {', '.join(unknown)}; there are: {', '.join(TOOLS)}.")
    if mode == "chat":
        names: Iterable[str] = [SEARCH]
    elif allowed is None:
        names = [tool.name for tool in TOOLS.values() if not tool.writes]
    else:
        names = allowed
    return [tool for tool in TOOLS.values() if tool.name in names and (searching or tool.name != SEARCH)]
