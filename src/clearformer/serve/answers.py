"""Responses: generated texts in the forms of OpenAI's completions and chat completions.

A form says what one choice looks like, whole and as a part of a stream; all else is shared.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from clearformer.generate.detokenize import REPLACEMENT, Token, token_bytes
from clearformer.generate.sequence import GeneratedSequence
from clearformer.text import BytePairs, Bytes, Tokenizer

Json = dict[str, Any]
REASONS = {
    "length": "length",
    "context": "length",
    "end": "stop",
    "stop": "stop",
    "complete": "stop",
    "interrupted": "stop",
}


class Form(Protocol):
    """What choices look like."""

    prefix: ClassVar[str]  # of the id of a response
    object: ClassVar[str]
    chunk_object: ClassVar[str]

    def whole(self, sequence: GeneratedSequence) -> Json: ...

    def part(self, tokens: Sequence[Token], before: str) -> Json:
        """Tokens of a stream, after the text `before`."""

    def opening(self) -> Json | None:
        """What a stream begins with, if anything."""


class Completions:
    """The form of /v1/completions."""

    prefix: ClassVar[str] = "cmpl"
    object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    def __init__(self, tokenizer: Tokenizer | None, logprobs: int | None) -> None:
        self.tokenizer = tokenizer
        self.logprobs = logprobs

    def whole(self, sequence: GeneratedSequence) -> Json:
        return self.part(sequence.tokens, "")

    def part(self, tokens: Sequence[Token], before: str) -> Json:
        text = "".join(token.text for token in tokens)
        return {"text": text, "logprobs": self._logprobs(tokens, len(before))}

    def opening(self) -> Json | None:
        return None

    def _logprobs(self, tokens: Sequence[Token], start: int) -> Json | None:
        if self.logprobs is None:
            return None
        offsets = []
        for token in tokens:
            offsets.append(start)
            start += len(token.text)
        return {
            "tokens": [spelled(self.tokenizer, token.id) for token in tokens],
            "token_logprobs": [nats(token.bits) for token in tokens],
            "top_logprobs": [
                {spelled(self.tokenizer, each.id): nats(each.bits) for each in token.alternatives}
                for token in tokens
            ],
            "text_offset": offsets,
        }


class Chat:
    """The form of /v1/chat/completions."""

    prefix: ClassVar[str] = "chatcmpl"
    object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer | None, logprobs: bool | None) -> None:
        self.tokenizer = tokenizer
        self.logprobs = bool(logprobs)

    def whole(self, sequence: GeneratedSequence) -> Json:
        message = {"role": "assistant", "content": sequence.text, "refusal": None}
        return {"message": message, "logprobs": self._logprobs(sequence.tokens)}

    def part(self, tokens: Sequence[Token], before: str) -> Json:
        text = "".join(token.text for token in tokens)
        return {"delta": {"content": text} if text else {}, "logprobs": self._logprobs(tokens)}

    def opening(self) -> Json | None:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def _logprobs(self, tokens: Sequence[Token]) -> Json | None:
        if not self.logprobs:
            return None
        content = [
            {
                **self._entry(token.id, token.bits),
                "top_logprobs": [self._entry(each.id, each.bits) for each in token.alternatives],
            }
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _entry(self, id: int, bits: float) -> Json:
        return {
            "token": spelled(self.tokenizer, id),
            "logprob": nats(bits),
            "bytes": None if self.tokenizer is None else list(bytes_of(self.tokenizer, id)),
        }


class Answer:
    """A response to one request; `chunk` and `whole` have the same head."""

    def __init__(
        self, form: Form, model: str, sequences: Sequence[GeneratedSequence], samples: int = 1
    ) -> None:
        self.form = form
        self.sequences = sequences
        self.samples = samples  # of each prompt, which follow each other
        self.id = f"{form.prefix}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.model = model
        self.texts = [""] * len(sequences)  # what a stream has sent

    def whole(self) -> Json:
        choices = [
            {
                "index": place,
                **self.form.whole(sequence),
                "finish_reason": reason(sequence),
            }
            for place, sequence in enumerate(self.sequences)
        ]
        return self._head(self.form.object) | {"choices": choices, "usage": self._usage()}

    def openings(self) -> list[bytes]:
        opening = self.form.opening()
        if opening is None:
            return []
        return [self._chunk(place, opening, None) for place in range(len(self.sequences))]

    def chunk(self, place: int, tokens: Sequence[Token], ended: bool) -> bytes:
        """An event for some tokens of one text."""
        part = self.form.part(tokens, self.texts[place])
        self.texts[place] += "".join(token.text for token in tokens)
        return self._chunk(place, part, reason(self.sequences[place]) if ended else None)

    def closing(self, include_usage: bool) -> list[bytes]:
        """The last events of a stream."""
        usage = self._head(self.form.chunk_object) | {"choices": [], "usage": self._usage()}
        return [*([event(usage)] if include_usage else []), b"data: [DONE]\n\n"]

    def _chunk(self, place: int, part: Json, finish_reason: str | None) -> bytes:
        choice = {"index": place, **part, "finish_reason": finish_reason}
        return event(self._head(self.form.chunk_object) | {"choices": [choice]})

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _usage(self) -> Json:
        # Samples of one prompt share it, and it is counted once.
        prompt = sum(len(sequence.prompt) for sequence in self.sequences[:: self.samples])
        written = sum(len(sequence.generated) for sequence in self.sequences)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
        }


def reason(sequence: GeneratedSequence) -> str | None:
    found = sequence.finish_reason
    return None if found is None else REASONS[found]


def event(data: Json) -> bytes:
    """A server-sent event; ASCII, as a token may be half a character."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def nats(bits: float) -> float:
    return -bits * math.log(2)


def spelled(tokenizer: Tokenizer | None, id: int) -> str:
    """A token as text; one that is a part of a character as its bytes."""
    if tokenizer is None:
        return f"token_id:{id}"
    text = tokenizer.decode([id])
    if REPLACEMENT not in text:
        return text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in bytes_of(tokenizer, id))


def bytes_of(tokenizer: Tokenizer, id: int) -> bytes:
    if isinstance(tokenizer, Bytes | BytePairs):
        return token_bytes(tokenizer, id)
    return tokenizer.decode([id]).encode()
