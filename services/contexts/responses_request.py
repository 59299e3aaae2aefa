"""The body of a request to the Responses API, made of a question and evidence (RC-8). Pure."""

from collections.abc import Sequence
from typing import Any

from services.contexts.canonical_json import canonical
from services.contexts.evidence_prompt import INSTRUCTIONS
from shared.contracts.evidence import Completion, ProviderProfile

# What a profile adds to the common fields. DeepSeek keeps nothing anyway, and does not know the field.
PROFILE_FIELDS: dict[ProviderProfile, dict[str, Any]] = {
    "compatible": {"store": False},
    "openai": {"store": False},
    "deepseek": {},
    "bailian": {"store": False},
}
# What of a piece of evidence the model gets to read; its ids and versions are ours.
SHOWN = ("label", "title", "source_url", "text")


def input_text(question: str, evidence: Sequence[dict[str, Any]]) -> str:
    """The text of the one user message: canonical JSON."""
    return canonical({"question": question, "evidence": [{name: item[name] for name in SHOWN} for item in evidence]})


def input_characters(question: str, evidence: Sequence[dict[str, Any]]) -> int:
    """What counts against `max_input_characters`: instructions and input text, in code points."""
    return len(INSTRUCTIONS) + len(input_text(question, evidence))


def request_body(completion: Completion, instructions: str, question: str, evidence: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The body. No tools, ids, addresses or credentials; `temperature` only where it was given."""
    body: dict[str, Any] = {
        "model": completion.model,
        "instructions": instructions,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": input_text(question, evidence)}]}],
        "max_output_tokens": completion.output_tokens,
        "stream": False,
        **PROFILE_FIELDS[completion.provider_profile],
    }
    return body if completion.temperature is None else {**body, "temperature": completion.temperature}
