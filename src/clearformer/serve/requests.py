"""Request bodies as types: validation and the OpenAPI document are derived from them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from clearformer.serve.limits import (
    MAX_CHOICES,
    MAX_LOGPROBS,
    MAX_PROMPT,
    MAX_STOPS,
    MAX_TEXTS,
)

Name = Annotated[str, Field(max_length=500)]
Text = Annotated[str, Field(max_length=MAX_PROMPT)]
Id = Annotated[int, Field(ge=0, lt=2**31)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=MAX_PROMPT)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
Stops = Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=MAX_STOPS)]
Number = Annotated[float, Field(allow_inf_nan=False)]


def only(value: object) -> AfterValidator:
    """Accepts a field that is not supported if it has no effect."""

    def check(given: object) -> object:
        if given != value:
            shown, wanted = json.dumps(given), json.dumps(value)
            raise ValueError(f"is {shown}, but only {wanted} is supported: leave it out")
        return given

    return AfterValidator(check)


class Body(BaseModel):
    """Fields that are not known are refused by name."""

    model_config = ConfigDict(extra="forbid", strict=False)


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False


class JsonSchema(Body):
    name: Name = "schema"
    description: Name | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class GenerationRequest(Body):
    """What completions and chats have in common; other samplers than OpenAI's are additions."""

    model: Name
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=100)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[Number, Field(gt=0, le=100)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[Number, only(0)] | None = None
    stop: Annotated[str, Field(max_length=1000)] | Stops | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    # Accepted, since clients send them, and without effect.
    user: Name | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None


class CompletionRequest(GenerationRequest):
    prompt: (
        Text
        | Ids
        | Annotated[list[Text], Field(min_length=1, max_length=MAX_CHOICES)]
        | Annotated[list[Ids], Field(min_length=1, max_length=MAX_CHOICES)]
    )
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: Annotated[bool, only(False)] | None = None
    best_of: Annotated[int, only(1)] | None = None


class ChatRequest(GenerationRequest):
    messages: Annotated[list[dict[str, Any]], Field(max_length=10_000)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None


class EmbeddingRequest(Body):
    model: Name
    input: Text | Ids | Texts | Annotated[list[Ids], Field(min_length=1, max_length=MAX_TEXTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: Name | None = None


class TextsRequest(Body):
    model: Name
    texts: Text | Texts


class FillRequest(TextsRequest):
    top_k: Annotated[int, Field(ge=1, le=1000)] = 5


class TranslateRequest(TextsRequest):
    beam: Annotated[int, Field(ge=1, le=64)] = 4
    length_penalty: Annotated[Number, Field(ge=-100, le=100)] = 1.0
    best: Annotated[int, Field(ge=1, le=64)] = 1
    max_tokens: Annotated[int, Field(ge=1)] | None = None
