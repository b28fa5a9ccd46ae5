"""Streams a generated text: each token with its random draw and the alternatives.

It calls the functions of `clearformer generate`, so the same seed gives the same text. Each
token is one call on the model's worker; the text is closed when the client disconnects.

Axes: V vocabulary.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearformer.explore import arrays, token_display
from clearformer.explore.inputs import require_text_length, require_token_ids
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import Limits
from clearformer.explore.requests import GenerateRequest
from clearformer.explore.traced_model import TracedModel
from clearformer.generate import logits_processors
from clearformer.generate.context import check_prompt_length, context_limit, default_overflow
from clearformer.generate.detokenize import Token
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling, process_logits, warp_logits
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig
from clearformer.generate.stream import generate_tokens
from clearformer.http_server.errors import Problem, bad_field, wrong_kind
from clearformer.text import Tokenizer

ALTERNATIVES = 10


class RecordingSequence(GeneratedSequence):
    """A sequence that also records the distribution of each token until the token is emitted: a
    token that ends within a character waits for the next one."""

    def __init__(
        self,
        prompt: Sequence[int],
        config: GenerationConfig,
        tokenizer: Tokenizer | None,
        seed: int,
    ) -> None:
        super().__init__(prompt, config, tokenizer, seed)
        # Logits and probabilities, each (V,), the oldest token's first.
        self.distributions: deque[tuple[Tensor, Tensor]] = deque()

    def advance(self, logits: Tensor) -> list[Token]:
        # A forced token has the probability with which it would have been drawn.
        free = replace(self.config.sampling, forced_ids=())
        scores = process_logits(logits, free, self.prompt, self.generated)
        if self.config.sampling.temperature == 0:
            probabilities = logits_processors.keep_only(scores, scores.argmax()[None]).softmax(0)
        else:
            probabilities = warp_logits(scores, self.config.sampling).softmax(0)
        self.distributions.append((scores, probabilities))
        return super().advance(logits)


class GeneratedText:
    """A text in progress: `next_token` gives the next event, or None at the end."""

    def __init__(self, loaded: LoadedModel, request: GenerateRequest, limits: Limits) -> None:
        config, model = loaded.config, loaded.model
        if "translate" in config.verbs:
            raise wrong_kind("an encoder-decoder translates: use the Tasks page")
        try:
            writer = LanguageModel(model.transformer, config, model.generation, model.tokenizer)
        except ValueError as problem:
            raise wrong_kind(str(problem)) from None
        require_text_length(request.prompt, limits)
        if request.max_new_tokens > limits.max_new_tokens:
            limit_message = f"{request.max_new_tokens} new tokens, limit {limits.max_new_tokens}"
            hint = "request fewer, and continue from there"
            raise Problem(413, "too_long", limit_message, hint=hint, limit=limits.max_new_tokens)
        forced = require_token_ids(loaded, request.forced, "forced") if request.forced else []
        sampling = Sampling(
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            forced_ids=tuple(forced),
        )
        settings = GenerationConfig(
            sampling=sampling,
            max_tokens=len(forced) + request.max_new_tokens,
            eos_ids=writer.eos_ids(),
        )
        try:
            prompt = writer.encode(request.prompt)
            rule = default_overflow(config)
            check_prompt_length(len(prompt), config, context_limit(rule, config))
        except ValueError as problem:
            raise bad_field("prompt", str(problem)) from None
        self.loaded = loaded
        self.model = model
        self.forced = len(forced)
        reported = self.forced if request.report_from is None else request.report_from
        self.first = min(reported, self.forced)  # token to report
        self.with_logits = request.logits
        self.row = RecordingSequence(prompt, settings, model.tokenizer, request.seed)
        self.events = self._events(writer, rule)

    def next_token(self) -> dict[str, Any] | None:
        return next(self.events, None)

    def close(self) -> None:
        self.events.close()

    @property
    def reason(self) -> str:
        return self.row.finish_reason or "cancelled"

    def _events(self, writer: LanguageModel, rule: Any) -> Generator[dict[str, Any]]:
        for index, (_, token) in enumerate(generate_tokens(writer, [self.row], rule)):
            logits, probabilities = self.row.distributions.popleft()
            if index >= self.first:
                yield {
                    **event(self.model, index, token, probabilities),
                    "logits": arrays.floats(logits - logits.max())
                    if self.with_logits and index >= self.forced
                    else None,
                }


def event(model: TracedModel, i: int, token: Token, probabilities: Tensor) -> dict[str, Any]:
    """The event for one token."""
    count = min(ALTERNATIVES, probabilities.shape[0])
    p, ids = (each[:count] for each in logits_processors.top_sorted(probabilities, count))
    own = float(probabilities[token.id])
    drawn, *top = token_display.vocabulary_items(model, [token.id, *ids.tolist()])
    return {
        "i": i,
        "id": token.id,
        "text": token.text,
        "display": drawn["display"],
        "p": own,
        "u": token.uniform,
        "bits": arrays.number(math.inf if own == 0 else -math.log2(own)),
        "cumulative": interval(probabilities, token.id),
        "top": [{**item, "p": each} for item, each in zip(top, p.tolist(), strict=True)],
    }


def interval(probabilities: Tensor, chosen: int) -> list[float]:
    """The interval of the cumulative distribution that belongs to a token: tokens in order of
    falling probability, ties by id."""
    p = probabilities[chosen]
    ids = torch.arange(probabilities.shape[0])
    before = (probabilities > p) | ((probabilities == p) & (ids < chosen))
    low = float(probabilities[before].sum())
    return [low, low + float(p)]
