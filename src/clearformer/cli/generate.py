"""`clearformer generate RUN "Once upon"`: continues texts, token by token."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer import limits
from clearformer.cli.generated import Throughput, as_json, as_line, numbers, token_printer
from clearformer.cli.output import tell, write, write_json
from clearformer.cli.prompts import NO_PROMPT, given_prompt, read_prompts, split_choices, token_id

if TYPE_CHECKING:
    from clearformer.cli.interruptible import Interrupt
    from clearformer.generate.beam import Beam
    from clearformer.generate.constraints import Constraint
    from clearformer.generate.context import ContextOverflow
    from clearformer.generate.detokenize import Token
    from clearformer.generate.language_model import LanguageModel
    from clearformer.generate.sampling import Sampling
    from clearformer.generate.sequence import GenerationConfig
    from clearformer.generate.speculate import Draft
    from clearformer.text import Tokenizer

TEMPERATURE = 0.8
MAX_BATCH = 1024  # samples of one prompt that are generated side by side
CUTS = {  # by finish reason
    "length": "after --max-tokens {max_tokens} tokens",
    "context": "after {tokens} tokens, where the context is full: see --context-overflow",
    "stop": "where --stop has cut it",
}
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
    "lookup": NO_SAMPLING,
    "draft": NO_SAMPLING,
    "show_probabilities": NO_SAMPLING,
}


@dataclass(frozen=True)
class Job:
    """What all texts of one command are generated with."""

    model: LanguageModel
    config: GenerationConfig
    overflow: ContextOverflow
    draft: Draft | None
    interrupt: Interrupt
    throughput: Throughput


@dataclass(frozen=True)
class Generate:
    """Continue a text with a trained generator."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    prompt: tyro.conf.Positional[str] = NO_PROMPT
    """The text to continue; - or none: standard input if it is a pipe, else a line break."""
    file: Path | None = None
    """Continue each line of this file instead (- is standard input); of a .csv, .tsv, .jsonl or
    .json table its column "prompt"."""
    jsonl: bool = False
    """Write one JSON object per result and line."""
    samples: int = 1
    """Number of texts per prompt."""
    batch_size: int = 8
    """Number of texts generated side by side."""
    max_tokens: int = 500
    """Maximum number of tokens to generate."""
    min_tokens: int = 0
    """Minimum number of tokens before the model may end a text."""
    beam: int | None = None
    """Beam search with this many beams; gives the --samples most likely texts."""
    length_penalty: float | None = None
    """Of a beam: scores are log probabilities divided by length to this power; none: 1."""
    temperature: float | None = None
    """Sampling temperature: above 1 more random, below 1 less, 0 always the most likely token;
    none: 0.8."""
    top_k: int | None = None
    """Sample from the k most likely tokens only."""
    top_p: float | None = None
    """Sample from the smallest set of tokens with this total probability."""
    min_p: float | None = None
    """Sample from tokens with at least this share of the highest probability."""
    typical_p: float | None = None
    """Sample from the tokens closest to the expected surprise that have this total probability."""
    repetition_penalty: float | None = None
    """Above 1: divide the logits of tokens in the prompt or the text by this."""
    frequency_penalty: float | None = None
    """Above 0: subtract this from a token's logit for each time the text has it."""
    banned: tuple[str, ...] = ()
    """Tokens that are never generated, each as its text or as #id."""
    forced: str = ""
    """The text begins with this."""
    stop: tuple[str, ...] = ()
    """End before any of these strings (in most shells a line break is $'\\n')."""
    choices: str | None = None
    """The text is one of these, separated by commas; a comma inside a choice is \\,."""
    pattern: str | None = None
    """The text matches this regular expression."""
    context_overflow: Literal["slide", "stop", "continue"] | None = None
    """At the end of the context: drop the oldest tokens, stop, or continue; none: as suits the
    model."""
    lookup: int | None = None
    """Propose this many tokens from repetitions and verify them in one pass: same text, faster."""
    draft: Path | None = None
    """A smaller run with the same tokenizer that proposes tokens: same text, faster."""
    weights: Literal["float32", "int8"] = "float32"
    """int8: smaller and faster on a CPU, slightly less accurate."""
    compile: bool = False
    """Compile the decoding step first: takes a minute; no gain on the CPUs that were tried."""
    show_probabilities: bool = False
    """Colour each token by its surprise in bits (a table, if not in a terminal; with --jsonl all
    ids, probabilities, bits and uniform numbers)."""
    quiet: bool = False
    """Do not report the throughput."""
    seed: int = 0
    """The same seed gives the same text."""

    def run(self) -> None:
        from clearformer.cli.interruptible import Interrupt

        self._check_flags()
        beam = self._beam()
        prompts = [given_prompt(self.prompt)] if self.file is None else read_prompts(self.file)
        model = self._load(self.run_folder)
        assert model.tokenizer is not None
        config = self.generation_config(model, model.tokenizer)
        draft = self._draft()
        overflow = self._overflow(model, prompts)
        throughput = Throughput()
        try:
            with Interrupt() as interrupt:
                job = Job(model, config, overflow, draft, interrupt, throughput)
                if beam is not None:
                    self._search(job, beam, prompts)
                elif self.file is None and self.samples == 1 and not self.jsonl:
                    self._stream(job, prompts[0])
                else:
                    self._batches(job, prompts)
        finally:
            sys.stdout.flush()
            if not self.quiet and throughput.tokens:
                throughput.tell()
        if interrupt.requested():
            raise KeyboardInterrupt

    def _check_flags(self) -> None:
        """Refuse what can be refused before the model is opened."""
        for name in ("batch_size", "samples"):
            if getattr(self, name) < 1:
                value = getattr(self, name)
                raise ValueError(f"{_flag(name)} is {value}, but it must be at least 1")
        for name in ("batch_size", "beam"):
            if (getattr(self, name) or 0) > limits.MAX_BATCH:
                value, most = getattr(self, name), limits.MAX_BATCH
                raise ValueError(f"{_flag(name)} is {value!r:.60}, but it must be at most {most:,}")
        if self.file is not None and self.prompt is not NO_PROMPT:
            raise ValueError("give either a prompt or --file, and not both")
        if self.show_probabilities and not self.jsonl and (self.file or self.samples > 1):
            raise ValueError("--show-probabilities shows one text: add --jsonl for several")

    def _overflow(self, model: LanguageModel, prompts: Sequence[str]) -> ContextOverflow:
        """The rule for the end of the context; all prompts must fit before the first is used."""
        from clearformer.generate import beam_generate
        from clearformer.generate.context import (
            OVERFLOW_BY_NAME,
            check_prompt_length,
            context_limit,
            default_overflow,
        )

        if self.context_overflow is not None:
            overflow = OVERFLOW_BY_NAME[self.context_overflow]
        elif self.beam is None:
            overflow = default_overflow(model.config)
        else:
            overflow = beam_generate.default_overflow(model.config)
        limit = context_limit(overflow, model.config)
        for number, prompt in enumerate(prompts, 1):
            try:
                check_prompt_length(len(model.encode(prompt)), model.config, limit)
            except ValueError as mistake:
                where = "" if self.file is None else f"{self.file}, line {number}: "
                raise ValueError(f"{where}{mistake}") from None
        return overflow

    def _stream(self, job: Job, prompt: str) -> None:
        """Write one text, token by token."""
        from clearformer.generate.stream import generate_tokens, start_sequences

        show = token_printer() if self.show_probabilities else None
        (sequence,) = start_sequences(job.model, [prompt], job.config, self.seed)
        tokens = generate_tokens(
            job.model,
            [sequence],
            job.overflow,
            draft=job.draft,
            should_stop=job.interrupt.requested,
        )
        first = next(tokens, None)  # errors come before any output
        write(prompt if show is None else "")
        try:
            for _, token in chain(() if first is None else (first,), tokens):
                job.throughput.count()
                if show is None:
                    write(token.text)
                else:
                    show(token)
        finally:
            write("\n")
        self._warn_incomplete(job.config.constraint, sequence.finish_reason, sequence.tokens)

    def _batches(self, job: Job, prompts: Sequence[str]) -> None:
        """Write many texts, each when it is finished, in the order of the prompts."""
        from clearformer.generate.stream import generate_many

        # All samples of a prompt in one batch, as far as that is useful.
        together = max(1, self.batch_size // self.samples) * self.samples
        together = min(together, max(self.batch_size, MAX_BATCH))
        texts = enumerate(prompt for prompt in prompts for _ in range(self.samples))
        while batch := list(islice(texts, together)):
            completions = generate_many(
                job.model,
                [prompt for _, prompt in batch],
                job.config,
                seed=self.seed,
                first=batch[0][0],
                context_overflow=job.overflow,
                draft=job.draft,
                should_stop=job.interrupt.requested,
            )
            # After an interruption there are fewer completions than prompts.
            for (index, _), text in zip(batch, completions, strict=False):
                job.throughput.count(len(text.tokens))
                if self.jsonl:
                    more = numbers(text.tokens) if self.show_probabilities else {}
                    write_json(as_json(text, index % self.samples, more))
                else:
                    write(as_line(text))
                self._warn_incomplete(job.config.constraint, text.finish_reason, text.tokens)
            if job.interrupt.requested():
                return

    def _search(self, job: Job, beam: Beam, prompts: Sequence[str]) -> None:
        """Write the best texts of a beam search for each prompt, in the order of the prompts."""
        from clearformer.generate.beam_generate import generate_beams

        together = max(1, self.batch_size // beam.width)
        for place in range(0, len(prompts), together):
            found = generate_beams(
                job.model,
                prompts[place : place + together],
                beam,
                max_tokens=self.max_tokens,
                min_tokens=self.min_tokens,
                banned=job.config.sampling.banned_ids,
                context_overflow=job.overflow,
                should_stop=job.interrupt.requested,
            )
            for sample, text in ((i, each) for several in found for i, each in enumerate(several)):
                job.throughput.count(len(text.tokens))
                if self.jsonl:
                    write_json(as_json(text, sample, {"score": text.score}))
                else:
                    write(as_line(text))
            if job.interrupt.requested():
                return

    def _beam(self) -> Beam | None:
        """The settings of a beam search, if there is one; flags that it would ignore raise."""
        from clearformer.generate.beam import Beam

        if self.beam is None:
            if self.length_penalty is not None:
                raise ValueError("--length-penalty is that of a beam: add --beam")
            return None
        defaults = {each.name: each.default for each in fields(self)}
        for name, why in NOT_WITH_A_BEAM.items():
            if getattr(self, name) != defaults[name]:
                raise ValueError(
                    f"{_flag(name)} does not go with --beam, which {why}: leave one out"
                )
        if self.context_overflow == "slide":
            raise ValueError(
                "--context-overflow slide does not go with --beam, which would have to read every "
                "beam again at each step: use stop or continue"
            )
        if self.samples > self.beam >= 1:
            raise ValueError(
                f"--samples is {self.samples}, but --beam {self.beam} follows only {self.beam}: "
                f"use a wider beam"
            )
        penalty = 1.0 if self.length_penalty is None else self.length_penalty
        return Beam(width=self.beam, length_penalty=penalty, best=self.samples)

    def _warn_incomplete(
        self, constraint: Constraint | None, reason: str | None, tokens: Sequence[Token]
    ) -> None:
        """Warn of a text that was cut before it met its constraint."""
        if constraint is None or reason not in CUTS:
            return
        state = constraint.start
        for token in tokens:
            state = constraint.after(state, token.id)
        if not constraint.may_end(state):
            cut = CUTS[reason].format(max_tokens=self.max_tokens, tokens=len(tokens))
            tell(f"note: the text does not match yet {cut}")

    def _load(self, folder: Path) -> LanguageModel:
        from clearformer.cli.generated import note
        from clearformer.generate.language_model import LanguageModel
        from clearformer.inference.int8 import quantize
        from clearformer.inference.packed_linear import pack, use_fast_products
        from clearformer.runs.load import open_run

        opened = open_run(folder, verb="generate")
        note(opened.note)
        # A single text multiplies each weight matrix by one vector, a batch by several.
        alone = self.file is None and self.samples == 1 and self.beam in (None, 1)
        if self.weights == "int8":
            quantize(opened.model)
        elif alone:
            use_fast_products(opened.model)
        elif not self.compile:  # which does not support packed weights
            pack(opened.model, max(self.batch_size, self.beam or 1))
        model = LanguageModel(opened.model, opened.config.model, opened.tokenizer)
        return model.compiled() if self.compile else model

    def generation_config(self, model: LanguageModel, tokenizer: Tokenizer) -> GenerationConfig:
        """The flags as a `GenerationConfig`."""
        from clearformer.generate.sequence import GenerationConfig

        sampling = self._sampling(tokenizer)
        return GenerationConfig(
            sampling=sampling,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            eos_ids=model.eos_ids(),
            stop=self.stop,
            constraint=self._constraint(tokenizer, sampling.banned_ids),
        )

    def _sampling(self, tokenizer: Tokenizer) -> Sampling:
        from clearformer.generate.constraints import encode_continuation
        from clearformer.generate.sampling import Sampling

        banned = tuple(token_id(text, tokenizer) for text in self.banned)
        forced = encode_continuation(self.forced, tokenizer, "--forced") if self.forced else ()
        if set(forced) & set(banned):
            raise ValueError(f"--forced {self.forced!r} needs a token that --banned rules out")
        self._check_length("--forced", forced, tokenizer)
        return Sampling(
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

    def _constraint(self, tokenizer: Tokenizer, banned: Sequence[int]) -> Constraint | None:
        from clearformer.generate.constraints import ChoiceConstraint, RegexConstraint

        given = [f"--{name}" for name in ("choices", "pattern") if getattr(self, name) is not None]
        if len(given) == 2:
            raise ValueError("give either --choices or --pattern, and not both")
        if self.forced and given:
            raise ValueError(
                f"give either --forced or {given[0]}, and not both: each says how the text begins"
            )
        if self.choices is not None:
            choices = ChoiceConstraint(split_choices(self.choices), tokenizer, banned)
            self._check_length("--choices", max(choices.texts, key=len), tokenizer)
            return choices
        return None if self.pattern is None else RegexConstraint(self.pattern, tokenizer, banned)

    def _check_length(self, flag: str, ids: Sequence[int], tokenizer: Tokenizer) -> None:
        """Refuse a limit that would silently cut what a flag asks for."""
        if len(ids) > self.max_tokens >= 1:
            raise ValueError(
                f"--max-tokens is {self.max_tokens}, but {flag} needs {len(ids)} tokens for "
                f"{tokenizer.decode(list(ids))!r}"
            )

    def _draft(self) -> Draft | None:
        from clearformer.generate.speculate import DraftModel, PromptLookup

        if self.lookup is not None and self.draft is not None:
            raise ValueError("give either --lookup or --draft, and not both")
        if self.lookup is not None:
            if self.lookup < 1:
                raise ValueError(f"--lookup is {self.lookup}, but it must be at least 1")
            return PromptLookup(tokens=self.lookup)
        return None if self.draft is None else DraftModel(self._load(self.draft))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
