"""What a provider's refusal means for the turn, in the shapes and words of many."""

from typing import Any

import pytest

from services.agent.provider_failure import SaidError, failure_of, refusal, said_error

TOO_LONG = (
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
    "Please reduce the length of the messages or completion.",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Invalid request: Your request exceeded model token limit: 8192",
    "Prompt exceeds max length",
    "prompt token count of 128001 exceeds the limit of 64000",
    "Total tokens of image and text exceed max message tokens.",
    "Input is too long for requested model.",
    "Requested token count exceeds the model's maximum context length of 4096 tokens.",
    "invalid params, context window exceeds limit (2013)",
)
OTHERWISE = (
    "max_tokens must be positive",
    "max_tokens is too large: 99999. This model supports at most 16384 completion tokens.",
    "Invalid value for 'messages': the content of message 3 is null.",
    "Invalid context: no such conversation",
    "tool_calls.0.id: string too long. Expected a string with maximum length 40",
    "The maximum number of tools allowed is 128.",
    "Unknown parameter: input",
    "Your prompt was flagged as violating our policy.",
    "You have exceeded your current quota.",
)


@pytest.mark.parametrize("words", TOO_LONG)
def test_a_request_that_is_too_long_is_known_by_the_providers_words(words: str) -> None:
    for body in ({"error": {"message": words, "type": "invalid_request_error", "code": None}}, {"message": words}, {"error": words}):
        failure = failure_of(refusal(400, body))
        assert (failure.code, failure.retriable, failure.message) == ("context_too_long", False, words)


@pytest.mark.parametrize("words", OTHERWISE)
def test_other_words_about_tokens_and_lengths_are_a_refusal(words: str) -> None:
    assert failure_of(refusal(400, {"error": {"message": words, "type": "invalid_request_error"}})).code == "provider_refused"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "No.", "code": "context_length_exceeded", "type": "invalid_request_error"},
        {"message": "No.", "code": 400, "type": "exceed_context_size_error", "n_ctx": 4096},
        {"message": "No.", "code": "prompt_too_long"},
        {"code": "context_length_exceeded"},
    ],
)
@pytest.mark.parametrize("status", [400, 429, 500])
def test_a_name_tells_whatever_the_words_and_the_status(error: dict[str, Any], status: int) -> None:
    for body in ({"error": error}, [{"error": error}], {"object": "error", **error}, {"message": "No.", **error}):
        assert failure_of(refusal(status, body)).code == "context_too_long"
    in_mid_stream = said_error({"error": error})
    assert in_mid_stream is not None
    assert failure_of(in_mid_stream).code == "context_too_long"


@pytest.mark.parametrize("words", ["Too many tokens, please wait before trying again.", "Limit of 30000 tokens per minute reached."])
def test_a_limit_of_tokens_in_a_time_passes(words: str) -> None:
    for said in (refusal(429, {"message": words}), said_error({"error": {"message": words, "code": "rate_limit_exceeded"}})):
        assert isinstance(said, SaidError)
        assert (failure_of(said).code, failure_of(said).retriable) == ("provider_rate_limited", True)
