"""Tokens over the rounds of a reply (ON-12)."""

from collections.abc import Sequence
from typing import Any

from services.agent.prompt import Round


def summed(rounds: Sequence[Round], *, partial: bool) -> dict[str, Any]:
    """The fields of the event `Usage`: sums over the rounds that reported something, null where none did.

    `partial` where a request that was given up consumed tokens that nobody reported.
    """
    sums: dict[str, int | None] = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "reasoning_tokens"))
    reports = [round_.usage for round_ in rounds if round_.usage is not None]
    for usage in reports:
        for name, count in counted(usage).items():
            sums[name] = (sums[name] or 0) + count
    return {**sums, "rounds": len(rounds), "partial": partial or len(reports) < len(rounds)}


def counted(usage: dict[str, Any]) -> dict[str, int]:
    """The counts in one report of a provider's that are counts, by our names."""
    counts = {
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "cached_tokens": _inner(usage, "prompt_tokens_details", "cached_tokens", "prompt_cache_hit_tokens"),
        "reasoning_tokens": _inner(usage, "completion_tokens_details", "reasoning_tokens"),
    }
    return {name: count for name, count in counts.items() if isinstance(count, int) and count >= 0}


def _inner(usage: dict[str, Any], group: str, name: str, flat: str | None = None) -> Any:
    details = usage.get(group)
    inner = details.get(name) if isinstance(details, dict) else None
    return inner if inner is not None or flat is None else usage.get(flat)
