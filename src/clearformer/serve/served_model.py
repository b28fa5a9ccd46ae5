"""A served model: turns requests into sequences, within the server's limits."""

from __future__ import annotations

import copy
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clearformer.config import Verb
from clearformer.generate.chat import chat_prompt
from clearformer.generate.constraints import Constraint, RegexConstraint
from clearformer.generate.context import check_prompt_length
from clearformer.generate.json_schema import any_object, schema_pattern
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.options import GenerationOptions
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig
from clearformer.generate.stream import start_sequences
from clearformer.http_server.errors import Problem, bad_field
from clearformer.model import Model
from clearformer.serve.engine import Engine
from clearformer.serve.limits import MAX_CHOICES, MAX_CONSTRAINTS, ServeLimits
from clearformer.serve.metrics import Metrics
from clearformer.serve.requests import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    ResponseFormat,
)

COMPLETION_TOKENS = 16  # OpenAI's default for completions
TEMPERATURE = 1.0  # as OpenAI's, unlike `Model.generate`


@dataclass(frozen=True)
class Prompt:
    """Token ids to continue, and what ends the text besides the request's own stops."""

    ids: tuple[int, ...]
    eos_ids: tuple[int, ...]
    stop: tuple[str, ...] = ()


class ServedModel:
    """A model, its engine, and the schemas that it has been asked for."""

    def __init__(self, id: str, model: Model, limits: ServeLimits, metrics: Metrics) -> None:
        self.id = id
        self.model = renamed(model, id)
        self.limits = limits
        self.writer: LanguageModel | None = None
        if "generate" in model.config.verbs:
            self.writer = self.model.language_model()
        self.engine = Engine(id, self.writer, limits, metrics)
        self._constraints: OrderedDict[str, Constraint] = OrderedDict()
        self._lock = threading.Lock()

    def require(self, verb: Verb) -> None:
        """Raise a Problem if the model was not made for this."""
        try:
            self.model.config.require_verb(verb, self.id)
        except ValueError as problem:
            raise Problem(400, "unsupported_model", str(problem), field="model") from None

    def texts(self, texts: str | Sequence[str]) -> list[str]:
        """The texts of a request as a list; Problem if the model has no tokenizer for them."""
        if self.model.tokenizer is None:
            raise Problem(400, "unsupported_model", f"{self.id} has no tokenizer", field="model")
        return [texts] if isinstance(texts, str) else list(texts)

    def vectors(self, texts: Sequence[Any]) -> list[Any]:
        """The vector of each text, as an array; Problem for a text that would be cut."""
        found = self.model.embeddings(texts)
        if found.cut:
            raise bad_field(
                "input",
                f"a text has more tokens than {self.id} reads ({self.model.config.length:,}): "
                f"divide it into shorter ones",
            )
        return list(found.vectors.float().numpy())

    # --- generation ----------------------------------------------------------------------------

    def completion_sequences(self, request: CompletionRequest) -> list[GeneratedSequence]:
        """`n` empty sequences for each prompt of a request."""
        writer = self._require_writer()
        given: Any = request.prompt
        single = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
        ends = writer.eos_ids()
        prompts = [
            Prompt(tuple(writer.encode(each)), ends) for each in ([given] if single else given)
        ]
        tokens = request.max_tokens or COMPLETION_TOKENS
        alternatives = request.logprobs or 0
        return self._sequences(request, prompts, lambda _: tokens, alternatives)

    def chat_sequences(self, request: ChatRequest) -> list[GeneratedSequence]:
        """`n` empty sequences for the conversation of a request."""
        writer = self._require_writer()
        if request.top_logprobs and not request.logprobs:
            raise bad_field(
                "top_logprobs", "top_logprobs is given without logprobs: add logprobs=true"
            )
        if request.max_tokens and request.max_completion_tokens:
            raise bad_field("max_tokens", "give max_tokens or max_completion_tokens, and not both")
        made = chat_prompt(writer, request.messages, self.id)
        prompt = Prompt(made.ids, made.eos_ids, made.stop)
        asked = request.max_completion_tokens or request.max_tokens

        def tokens(length: int) -> int:
            room = max(1, writer.config.length - length)  # an answer fits into the context
            return min(room, self.limits.max_tokens) if asked is None else asked

        return self._sequences(request, [prompt], tokens, request.top_logprobs or 0)

    def _require_writer(self) -> LanguageModel:
        self.require("generate")
        assert self.writer is not None
        return self.writer

    def _sequences(
        self,
        request: GenerationRequest,
        prompts: Sequence[Prompt],
        max_tokens: Callable[[int], int],
        alternatives: int,
    ) -> list[GeneratedSequence]:
        writer, samples = self._require_writer(), request.n or 1
        if not prompts or len(prompts) * samples > MAX_CHOICES:
            raise bad_field(
                "n",
                f"the request asks for {samples} texts for each of {len(prompts)} prompts, but at "
                f"most {MAX_CHOICES} texts are allowed: lower n or give fewer prompts",
            )
        seed = secrets.randbits(63) if request.seed is None else request.seed
        base = self._config(request)
        sequences: list[GeneratedSequence] = []
        for prompt in prompts:
            check_prompt_length(len(prompt.ids), writer.config, self._limit(writer))
            tokens = max_tokens(len(prompt.ids))
            if tokens > self.limits.max_tokens:
                raise bad_field(
                    "max_tokens",
                    f"max_tokens is {tokens:,}, but this server allows {self.limits.max_tokens:,}",
                )
            config = replace(
                base,
                max_tokens=tokens,
                eos_ids=prompt.eos_ids,
                stop=(*base.stop, *prompt.stop),
                alternatives=alternatives,
            )
            ids = [prompt.ids] * samples
            sequences += start_sequences(writer, ids, config, seed, len(sequences))
        return sequences

    def _limit(self, writer: LanguageModel) -> int | None:
        return None if self.engine.batch is None else self.engine.batch.limit

    def _config(self, request: GenerationRequest) -> GenerationConfig:
        stop = request.stop or ()
        options = GenerationOptions(
            temperature=TEMPERATURE if request.temperature is None else request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            min_p=request.min_p,
            repetition_penalty=request.repetition_penalty,
            frequency_penalty=request.frequency_penalty,
            stop=stop,
        )
        config = options.prepare(self._require_writer()).config
        return replace(config, constraint=self._constraint(request.response_format))

    def _constraint(self, wanted: ResponseFormat | None) -> Constraint | None:
        """The constraint of a response format; schemas that were compiled are kept."""
        if wanted is None or wanted.type == "text":
            return None
        schema: object = None
        if wanted.type == "json_schema":
            schema = None if wanted.json_schema is None else wanted.json_schema.schema_
            if schema is None:
                raise bad_field(
                    "response_format", "response_format has no json_schema.schema: add it"
                )
        key = json.dumps([wanted.type, schema], sort_keys=False)
        with self._lock:
            if key in self._constraints:
                self._constraints.move_to_end(key)
                return self._constraints[key]
        tokenizer = self.model.tokenizer
        if tokenizer is None:
            raise bad_field(
                "response_format", f"{self.id} has no tokenizer, so it cannot write JSON"
            )
        try:
            pattern = any_object() if wanted.type == "json_object" else schema_pattern(schema)
            made = RegexConstraint(pattern, tokenizer)
        except ValueError as problem:
            raise bad_field("response_format", _schema_message(str(problem))) from None
        with self._lock:
            self._constraints[key] = made
            while len(self._constraints) > MAX_CONSTRAINTS:
                self._constraints.popitem(last=False)
        return made


def renamed(model: Model, name: str) -> Model:
    """The same model; its messages call it by the name that clients use, not by its folder."""
    found = copy.copy(model)
    found.config, found.path = replace(model.config, name=name), None
    return found


def _schema_message(message: str) -> str:
    """The message of the pattern's automaton, without the pattern that nobody wrote."""
    _, found, reason = message.partition("cannot be used: ")
    return f"the schema cannot be used: {reason}" if found else message
