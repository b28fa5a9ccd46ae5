"""Options of text generation, as `Model.generate` and `clearformer generate` take them.

In messages the names of options are in backticks; the command line shows them as flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Literal, cast

from clearformer import limits
from clearformer.arguments import require_choice, require_int, require_number, require_texts
from clearformer.generate import beam_generate
from clearformer.generate.beam import Beam
from clearformer.generate.beam_generate import BeamCompletion, generate_beams
from clearformer.generate.constraints import (
    ChoiceConstraint,
    Constraint,
    RegexConstraint,
    encode_continuation,
)
from clearformer.generate.context import (
    OVERFLOW_BY_NAME,
    ContextOverflow,
    check_prompt_length,
    context_limit,
    default_overflow,
    prompt_note,
)
from clearformer.generate.detokenize import Token
from clearformer.generate.json_schema import parse_schema, schema_pattern
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig
from clearformer.generate.speculate import Draft, DraftModel, PromptLookup
from clearformer.generate.stream import (
    Completion,
    Prompt,
    StopCondition,
    generate_many,
    generate_tokens,
    never,
    start_sequences,
)
from clearformer.text import Tokenizer

TEMPERATURE = 0.8
LARGE = 1_000_000.0
# Options by their least and largest value.
WHOLE_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "max_tokens": (1, limits.MAX_TOKENS),
    "min_tokens": (0, limits.MAX_TOKENS),
    "samples": (1, limits.MAX_BATCH),
    "batch_size": (1, limits.MAX_BATCH),
    "top_k": (1, None),
    "beam": (1, limits.MAX_BEAM),
    "lookup": (1, limits.MAX_BATCH),
    "seed": (None, None),
}
NEEDED = ("max_tokens", "min_tokens", "samples", "batch_size", "seed")
NUMBERS: dict[str, tuple[float | None, float | None]] = {
    "temperature": (0, LARGE),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "typical_p": (0, 1),
    "repetition_penalty": (0, LARGE),
    "frequency_penalty": (-LARGE, LARGE),
    "length_penalty": (-100, 100),
}
MAX_BATCH = 1024  # samples of one prompt that are generated side by side
NO_SAMPLING = "does not sample"
NO_RULES = "searches for the most likely text"
NOT_WITH_A_BEAM = {
    "temperature": NO_SAMPLING,
    "top_k": NO_SAMPLING,
    "top_p": NO_SAMPLING,
    "min_p": NO_SAMPLING,
    "typical_p": NO_SAMPLING,
    "repetition_penalty": NO_RULES,
    "frequency_penalty": NO_RULES,
    "forced": NO_RULES,
    "stop": NO_RULES,
    "choices": NO_RULES,
    "pattern": NO_RULES,
    "json_schema": NO_RULES,
    "lookup": NO_SAMPLING,
    "draft": NO_SAMPLING,
}


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Options that need no model to be checked; `Model.generate` documents them."""

    max_tokens: int = 500
    min_tokens: int = 0
    samples: int = 1
    batch_size: int = 8
    temperature: float | None = None  # None: TEMPERATURE
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    banned: Sequence[str | int] = ()
    forced: str = ""
    stop: Sequence[str] = ()
    choices: Sequence[str] | None = None
    pattern: str | None = None
    json_schema: Mapping[str, object] | str | None = None
    beam: int | None = None
    length_penalty: float | None = None
    context_overflow: Literal["slide", "stop", "continue"] | None = None
    lookup: int | None = None
    draft: object = None  # a LanguageModel, once the options are prepared
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (low, high) in WHOLE_NUMBERS.items():
            if getattr(self, name) is not None or name in NEEDED:
                require_int(name, getattr(self, name), low, high)
        for name, (least, largest) in NUMBERS.items():
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), least, largest)
        for name in ("forced", "pattern", "stop", "choices"):
            if getattr(self, name) is not None:
                require_texts(name, getattr(self, name))
        require_tokens("banned", self.banned)
        if self.context_overflow is not None:
            require_choice("context_overflow", self.context_overflow, OVERFLOW_BY_NAME)
        for several in (
            ("lookup", "draft"),
            ("choices", "pattern"),
            ("choices", "json_schema"),
            ("pattern", "json_schema"),
        ):
            if all(getattr(self, name) is not None for name in several):
                raise ValueError(f"give either `{several[0]}` or `{several[1]}`, and not both")
        for name in ("choices", "pattern", "json_schema"):
            if self.forced and getattr(self, name) is not None:
                raise ValueError(
                    f"give either `forced` or `{name}`, and not both: each says how the text begins"
                )
        self._check_beam()

    def _check_beam(self) -> None:
        if self.beam is None:
            if self.length_penalty is not None:
                raise ValueError("`length_penalty` is that of a beam: add `beam`")
            return
        defaults = {each.name: each.default for each in fields(GenerationOptions)}
        for name, why in NOT_WITH_A_BEAM.items():
            if getattr(self, name) != defaults[name]:
                raise ValueError(f"`{name}` does not go with `beam`, which {why}: leave one out")
        if self.context_overflow == "slide":
            raise ValueError(
                "`context_overflow` slide does not go with `beam`, which would have to read every "
                "beam again at each step: use stop or continue"
            )
        if self.samples > self.beam >= 1:
            raise ValueError(
                f"`samples` is {self.samples}, but `beam` {self.beam} follows only {self.beam}: "
                f"use a wider beam"
            )

    def prepare(self, model: LanguageModel) -> Generation:
        """The options as values of this model; ValueError for what its tokenizer cannot express."""
        draft: Draft | None = None
        if self.lookup is not None:
            draft = PromptLookup(tokens=self.lookup)
        elif self.draft is not None:
            assert isinstance(self.draft, LanguageModel)
            draft = DraftModel(self.draft)
        beam = None
        if self.beam is not None:
            penalty = 1.0 if self.length_penalty is None else self.length_penalty
            beam = Beam(width=self.beam, length_penalty=penalty, best=self.samples)
        return Generation(self, model, self._config(model), self._overflow(model), draft, beam)

    def _overflow(self, model: LanguageModel) -> ContextOverflow:
        if self.context_overflow is not None:
            return OVERFLOW_BY_NAME[self.context_overflow]
        usual = default_overflow if self.beam is None else beam_generate.default_overflow
        return usual(model.config)

    def _config(self, model: LanguageModel) -> GenerationConfig:
        tokenizer = model.tokenizer
        banned = tuple(token_id(each, tokenizer) for each in self.banned)
        forced: tuple[int, ...] = ()
        if self.forced:
            forced = encode_continuation(self.forced, _required(tokenizer, "forced"), "`forced`")
            if set(forced) & set(banned):
                raise ValueError(f"`forced` {self.forced!r} needs a token that `banned` rules out")
            self._check_length("forced", forced, tokenizer)
        sampling = Sampling(
            temperature=TEMPERATURE if self.temperature is None else self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            repetition_penalty=self.repetition_penalty,
            frequency_penalty=self.frequency_penalty,
            banned_ids=banned,
            forced_ids=forced,
        )
        return GenerationConfig(
            sampling=sampling,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            eos_ids=model.eos_ids(),
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            constraint=self._constraint(tokenizer, banned),
        )

    def _constraint(self, tokenizer: Tokenizer | None, banned: Sequence[int]) -> Constraint | None:
        if self.choices is not None:
            texts = [self.choices] if isinstance(self.choices, str) else self.choices
            choices = ChoiceConstraint(texts, _required(tokenizer, "choices"), banned)
            self._check_length("choices", max(choices.texts, key=len), tokenizer)
            return choices
        if self.json_schema is not None:
            pattern = schema_pattern(parse_schema(self.json_schema))
            return RegexConstraint(pattern, _required(tokenizer, "json_schema"), banned)
        if self.pattern is None:
            return None
        return RegexConstraint(self.pattern, _required(tokenizer, "pattern"), banned)

    def _check_length(self, name: str, ids: Sequence[int], tokenizer: Tokenizer | None) -> None:
        """Refuse a limit that would silently cut what an option asks for."""
        if len(ids) > self.max_tokens >= 1:
            text = "" if tokenizer is None else f" for {tokenizer.decode(list(ids))!r}"
            raise ValueError(
                f"`max_tokens` is {self.max_tokens}, but `{name}` needs {len(ids)} tokens{text}"
            )


@dataclass(frozen=True)
class Generation:
    """Options prepared for a model: generates texts for prompts."""

    options: GenerationOptions
    model: LanguageModel
    config: GenerationConfig
    overflow: ContextOverflow
    draft: Draft | None
    beam: Beam | None

    def check_prompts(self, prompts: Sequence[Prompt], where: str = "") -> list[str]:
        """Notes on prompts of which only the end fits; ValueError for one that is not to be cut.

        `where` is the file that they come from.
        """
        config, rule, notes = self.model.config, self.overflow, list[str]()
        limit = context_limit(rule, config)
        for number, prompt in enumerate(prompts, 1):
            place = f"{where}, line {number}: " if where else ""
            length = len(self.model.encode(prompt))
            if (note := prompt_note(length, rule, config, limit)) is not None and self.beam is None:
                notes.append(f"{place}{note}")
                continue
            try:
                check_prompt_length(length, config, limit)
            except ValueError as problem:
                raise ValueError(f"{place}{problem}") from None
        return notes

    def require_whole(self, prompt: Prompt) -> None:
        """ValueError for a prompt that does not fit whole, such as a conversation."""
        config, limit = self.model.config, context_limit(self.overflow, self.model.config)
        check_prompt_length(len(self.model.encode(prompt)), config, limit)

    def start(self, prompt: Prompt) -> GeneratedSequence:
        """An empty sequence for one prompt, as `stream` takes it."""
        (sequence,) = start_sequences(self.model, [prompt], self.config, self.options.seed)
        return sequence

    def stream(
        self, sequence: GeneratedSequence, should_stop: StopCondition = never
    ) -> Iterator[Token]:
        """Yield the tokens of one sequence, each as soon as its text is certain."""
        for _, token in generate_tokens(
            self.model, [sequence], self.overflow, draft=self.draft, should_stop=should_stop
        ):
            yield token

    def completions(
        self, prompts: Sequence[Prompt], should_stop: StopCondition = never
    ) -> Iterator[Completion | BeamCompletion]:
        """Yield `samples` completions of each prompt, in the order of the prompts.

        After `should_stop()` was true there may be fewer.
        """
        return (self._samples if self.beam is None else self._beams)(prompts, should_stop)

    def _samples(
        self, prompts: Sequence[Prompt], should_stop: StopCondition
    ) -> Iterator[Completion]:
        # All samples of a prompt in one batch, as far as that is useful.
        samples, batch_size = self.options.samples, self.options.batch_size
        together = max(1, batch_size // samples) * samples
        together = min(together, max(batch_size, MAX_BATCH))
        texts = enumerate(prompt for prompt in prompts for _ in range(samples))
        while (batch := list(islice(texts, together))) and not should_stop():
            yield from generate_many(
                self.model,
                [prompt for _, prompt in batch],
                self.config,
                seed=self.options.seed,
                first=batch[0][0],
                context_overflow=self.overflow,
                draft=self.draft,
                should_stop=should_stop,
            )

    def _beams(
        self, prompts: Sequence[Prompt], should_stop: StopCondition
    ) -> Iterator[BeamCompletion]:
        assert self.beam is not None
        together = max(1, self.options.batch_size // self.beam.width)
        for start in range(0, len(prompts), together):
            if should_stop():
                return
            for several in generate_beams(
                self.model,
                prompts[start : start + together],
                self.beam,
                max_tokens=self.options.max_tokens,
                min_tokens=self.options.min_tokens,
                banned=self.config.sampling.banned_ids,
                context_overflow=self.overflow,
                should_stop=should_stop,
            ):
                yield from several


def require_tokens(name: str, tokens: object) -> None:
    """Raise ValueError if a value is not a list of texts and ids."""
    several = isinstance(tokens, Sequence) and not isinstance(tokens, str)
    if not several or not all(isinstance(each, str | int) for each in cast(Sequence[Any], tokens)):
        raise ValueError(f"`{name}` is {tokens!r:.60}, but it must be a list of tokens or ids")


def token_id(token: str | int, tokenizer: Tokenizer | None) -> int:
    """The id of a text that is one token, of "#id", or of an id."""
    if not isinstance(token, str):
        return int(token)
    tokenizer = _required(tokenizer, "banned")
    if re.fullmatch("#[0-9]{1,18}", token):
        if int(token[1:]) >= tokenizer.size:
            raise ValueError(
                f"there is no token {token}: this tokenizer ({tokenizer.kind}) has the ids 0 to "
                f"{tokenizer.size - 1}"
            )
        return int(token[1:])
    ids = encode_continuation(token, tokenizer, "`banned`")
    if len(ids) != 1:
        raise ValueError(
            f"{token!r} is not a token of this tokenizer ({tokenizer.kind}), which encodes it as "
            f"{len(ids)} tokens: give single tokens, or #id"
        )
    return ids[0]


def _required(tokenizer: Tokenizer | None, name: str) -> Tokenizer:
    if tokenizer is None:
        raise ValueError(f"`{name}` is text, but the model has no tokenizer: load it with one")
    return tokenizer
