"""`POST /v1/chat/completions`: the body, and the turn that it means.

Fields that would change the answer and cannot be had are refused (a silent ignore would answer another question); fields that change
nothing here, unknown ones included, are passed over, as servers of this protocol do.
"""

from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.gateway.chat_completions.messages import MessageIn, conversation
from services.gateway.search_filters import RetrievalOptions
from services.gateway.strict_route import Body, Id
from shared.contracts.chat import MESSAGE_CHARACTERS_MAX, StartTurn
from shared.contracts.errors import ErrorCode, ServiceError

MESSAGES_MAX = 2000
SEED_MAX = 2**63 - 1
TOKENS_MAX = 2**31 - 1
# Passed on to the provider as they came.
SAMPLING = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "presence_penalty", "frequency_penalty",
    "reasoning_effort",
)  # fmt: skip

Tokens = Annotated[int, Field(ge=1, le=TOKENS_MAX)]
StopWord = Annotated[str, Field(min_length=1, max_length=1000)]


class _Lenient(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class StreamOptions(_Lenient):
    """How a stream ends."""

    include_usage: bool = False


class MarginaliaOptions(Body):
    """Ours; in OpenAI's Python client `extra_body={"marginalia": {…}}`. Fields as in `POST /api/chat`."""

    workspace: Id | None = None
    retrieval: RetrievalOptions = RetrievalOptions()


class CompletionRequest(_Lenient):
    """What is read of a body. Numbers have the ranges of OpenAI's description."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=MESSAGES_MAX)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    stop: StopWord | Annotated[list[StopWord], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-SEED_MAX, le=SEED_MAX)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    reasoning_effort: Annotated[str, Field(pattern=r"^[a-z_]{1,20}$")] | None = None
    marginalia: MarginaliaOptions | None = None
    # Read to be refused where they ask for something.
    n: Annotated[int, Field(ge=1)] | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    function_call: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None
    logit_bias: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def check(self) -> None:
        """Refuse what cannot be had here.

        Raises:
            ServiceError: `unsupported_parameter`.
        """
        for name, asked, why in (
            ("n", (self.n or 1) > 1, "one answer is given"),
            ("tools", self.tools, "the model has the notes as its only tool"),
            ("functions", self.functions, "the model has the notes as its only tool"),
            ("tool_choice", self.tool_choice not in (None, "none", "auto"), "the model itself decides whether it searches the notes"),
            ("function_call", self.function_call not in (None, "none", "auto"), "the model itself decides whether it searches the notes"),
            ("response_format", (self.response_format or {}).get("type", "text") != "text", "answers are text"),
            ("modalities", set(self.modalities or ()) - {"text"}, "answers are text"),
            ("audio", self.audio, "answers are text"),
            ("logprobs", self.logprobs, "probabilities are not kept"),
            ("top_logprobs", self.top_logprobs, "probabilities are not kept"),
            ("logit_bias", self.logit_bias, "it is not passed on"),
            ("web_search_options", self.web_search_options is not None, "the notes are searched, not the web"),
        ):
            if asked:
                raise ServiceError(ErrorCode.UNSUPPORTED_PARAMETER, f"{name} is not supported: {why}.", param=name)

    def to_contract(self, turn_id: UUID, provider: str, model: str) -> StartTurn:
        """The turn that this asks for, in a conversation of its own.

        Raises:
            ServiceError: `unsupported_parameter`, `invalid`, `too_large`.
        """
        self.check()
        instructions, history, message = conversation(self.messages)
        if len(message) > MESSAGE_CHARACTERS_MAX:
            raise ServiceError(
                ErrorCode.TOO_LARGE, f"A message may have {MESSAGE_CHARACTERS_MAX} characters.", limit=MESSAGE_CHARACTERS_MAX
            )
        options = self.marginalia or MarginaliaOptions()
        return StartTurn(
            turn_id=turn_id,
            transient=True,
            workspace=options.workspace,
            message=message,
            history=history,
            instructions=instructions,
            sampling=self.model_dump(include=set(SAMPLING), exclude_none=True),
            retrieval=options.retrieval.to_contract(),
            provider=provider,
            model=model,
        )
