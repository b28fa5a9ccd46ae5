"""`clearformer generate RUN "Once upon"`: continues texts, token by token."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from clearformer.arguments import Weights
from clearformer.cli.generated import Throughput, as_json, as_line, token_printer
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import tell, with_flags, write, write_json
from clearformer.cli.prompts import NO_PROMPT, given_prompt, read_prompts, split_choices

if TYPE_CHECKING:
    from clearformer.cli.interruptible import Interrupt
    from clearformer.generate.options import Generation
    from clearformer.generate.stream import StopCondition
    from clearformer.model import Model

CUTS = {  # by finish reason
    "length": "after --max-tokens {max_tokens} tokens",
    "context": "after {tokens} tokens, because the context is full: see --context-overflow",
    "stop": "where --stop has cut it",
}


@dataclass(frozen=True)
class Generate(ModelCommand):
    """Continue a text with a trained generator."""

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
    json_schema: Path | None = None
    """The text is JSON that follows the schema in this file."""
    context_overflow: Literal["slide", "stop", "continue"] | None = None
    """At the end of the context: drop the oldest tokens, stop, or continue; none: as suits the
    model."""
    lookup: int | None = None
    """Propose this many tokens from repetitions and verify them in one pass: same text, faster."""
    draft: Path | None = None
    """A smaller run with the same tokenizer that proposes tokens: same text, faster."""
    weights: Weights = "float32"
    """int8: smaller and faster on a CPU, slightly less accurate; int4: smaller still."""
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
        from clearformer.generate.options import GenerationOptions

        self._check_flags()
        options = self._options()
        GenerationOptions(**options)  # errors come before the model is opened
        prompts = [given_prompt(self.prompt)] if self.file is None else read_prompts(self.file)
        generation = self._open().generation(options)
        for note in generation.check_prompts(prompts, "" if self.file is None else str(self.file)):
            tell(f"note: {with_flags(note, self)}")
        throughput = Throughput()
        try:
            with Interrupt() as interrupt:
                if self.file is None and self.samples == 1 and not self.jsonl and not self.beam:
                    self._stream(generation, prompts[0], interrupt, throughput)
                else:
                    self._batches(generation, prompts, interrupt.requested, throughput)
        finally:
            sys.stdout.flush()
            if not self.quiet and throughput.tokens:
                throughput.tell()
        if interrupt.requested():
            raise KeyboardInterrupt

    def _check_flags(self) -> None:
        """Refuse flags about input and output that contradict each other."""
        if self.file is not None and self.prompt is not NO_PROMPT:
            raise ValueError("give either a prompt or --file, and not both")
        if self.show_probabilities and not self.jsonl and (self.file or self.samples > 1):
            raise ValueError("--show-probabilities shows one text: add --jsonl for several")
        if self.show_probabilities and self.beam is not None:
            raise ValueError(
                "--show-probabilities does not go with --beam, which does not sample: leave one out"
            )

    def _options(self) -> dict[str, Any]:
        """The flags as the options of `Model.generate`."""
        from clearformer.generate.options import GenerationOptions

        options = {each.name: getattr(self, each.name) for each in fields(GenerationOptions)}
        if self.choices is not None:
            options["choices"] = split_choices(self.choices)
        if self.json_schema is not None:
            from clearformer.safe_json import read_json

            options["json_schema"] = read_json(self.json_schema)
        return options

    def _open(self) -> Model:
        """The model, optimized for the number of texts that are generated in parallel."""
        model = self.load(weights=self.weights)
        alone = self.file is None and self.samples == 1 and self.beam in (None, 1)
        if self.compile:
            model.compile()  # which does not support packed weights
        elif self.weights == "float32" and self.device == "cpu":
            model.optimize(1 if alone else max(self.batch_size, self.beam or 1))
        return model

    def _stream(
        self, generation: Generation, prompt: str, interrupt: Interrupt, throughput: Throughput
    ) -> None:
        """Write one text, token by token."""
        show = token_printer() if self.show_probabilities else None
        sequence = generation.start(prompt)
        tokens = generation.stream(sequence, interrupt.requested)
        first = next(tokens, None)  # errors come before any output
        write(prompt if show is None else "")
        try:
            for token in chain(() if first is None else (first,), tokens):
                throughput.count()
                if show is None:
                    write(token.text)
                else:
                    show(token)
        finally:
            write("\n")
        ids = [token.id for token in sequence.tokens]
        self._warn_incomplete(generation, sequence.finish_reason, ids)

    def _batches(
        self,
        generation: Generation,
        prompts: Sequence[str],
        should_stop: StopCondition,
        throughput: Throughput,
    ) -> None:
        """Write many texts, each when it is finished, in the order of the prompts."""
        for index, text in enumerate(generation.completions(prompts, should_stop)):
            throughput.count(len(text.tokens))
            if self.jsonl:
                more = text.numbers() if self.show_probabilities or self.beam else {}
                write_json(as_json(text, index % self.samples, more))
            else:
                write(as_line(text))
            self._warn_incomplete(generation, text.finish_reason, text.ids)

    def _warn_incomplete(
        self, generation: Generation, reason: str | None, ids: Sequence[int]
    ) -> None:
        """Warn of a text that was cut before it met its constraint."""
        constraint = generation.config.constraint
        if constraint is None or reason not in CUTS:
            return
        state = constraint.start
        for token in ids:
            state = constraint.after(state, token)
        if not constraint.may_end(state):
            cut = CUTS[reason].format(max_tokens=self.max_tokens, tokens=len(ids))
            tell(f"note: the text does not match yet {cut}")
