"""`clearformer generate RUN "Once upon"`: continue texts, token by token."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer import limits
from clearformer.cli.generated import Clock, as_json, as_line, numbers, shower
from clearformer.cli.output import tell, write, write_json
from clearformer.cli.prompts import NO_PROMPT, given_prompt, read_prompts, split_choices, token_id

if TYPE_CHECKING:
    from clearformer.cli.interruptible import Text, Writing
    from clearformer.generate.beam import Beam
    from clearformer.generate.sequence import Task
    from clearformer.generate.speculate import Draft
    from clearformer.generate.writer import Writer
    from clearformer.text import Tokenizer

TEMPERATURE = 0.8
MOST_TOGETHER = 1024  # samples of one prompt that are written side by side
CUTS = {  # by the reason why a text ended
    "length": "after --length {length} tokens",
    "context": "after {tokens} tokens, where the context is full: --past-context may go on",
    "stop": "where --stop has cut it",
}
DRAWS = "draws nothing"
FREE = "looks for the likeliest text in any form"
NOT_WITH_A_BEAM = {
    "temperature": DRAWS,
    "top_k": DRAWS,
    "top_p": DRAWS,
    "min_p": DRAWS,
    "typical": DRAWS,
    "repetition": FREE,
    "frequency": FREE,
    "forced": FREE,
    "stop": FREE,
    "choices": FREE,
    "pattern": FREE,
    "lookup": DRAWS,
    "draft": DRAWS,
    "show_probabilities": DRAWS,
}


@dataclass(frozen=True)
class Generate:
    """Continue a text with a trained generator."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    prompt: tyro.conf.Positional[str] = NO_PROMPT
    """The text to continue; - or none: all that is piped in, or else a line break."""
    file: Path | None = None
    """Continue each line of this file instead (- is standard input); of a .csv, .tsv, .jsonl or
    .json table its column "prompt"."""
    jsonl: bool = False
    """One result a line, as JSON."""
    samples: int = 1
    """How many texts for each prompt."""
    batch: int = 8
    """How many texts are written side by side."""
    length: int = 500
    """How many tokens to add at the most."""
    least: int = 0
    """How many tokens to add before a text may end by itself."""
    beam: int | None = None
    """Draw nothing, follow so many versions of a text at once, and give the --samples likeliest."""
    length_penalty: float | None = None
    """Of a beam: scores are log probabilities over length to this power; none: 1."""
    temperature: float | None = None
    """Above 1 more daring, below 1 more careful, 0 always the most likely; none: 0.8."""
    top_k: int | None = None
    """Choose among so many tokens only."""
    top_p: float | None = None
    """Choose among the fewest tokens that have this probability together."""
    min_p: float | None = None
    """Choose among tokens at least so likely, as a share of the most likely."""
    typical: float | None = None
    """Choose among the least surprisingly surprising tokens that have this probability together."""
    repetition: float | None = None
    """Above 1: make tokens that were there less likely, by division."""
    frequency: float | None = None
    """Above 0: make tokens less likely each time they come, by subtraction."""
    banned: tuple[str, ...] = ()
    """Tokens that never come, each as its text or as #id."""
    forced: str = ""
    """The text begins with this."""
    stop: tuple[str, ...] = ()
    """End before any of these (in most shells a line break is $'\\n')."""
    choices: str | None = None
    """The text is one of these, between commas; a comma that belongs to one is \\,."""
    pattern: str | None = None
    """The text matches this regular expression."""
    past_context: Literal["slide", "stop", "continue"] | None = None
    """Past the model's context: drop the oldest part, end, or go on; none: what suits the model."""
    lookup: int | None = None
    """Guess so many tokens from repetitions and check them at once: the same text, sooner."""
    draft: Path | None = None
    """A smaller run with the same tokenizer that guesses: the same text, sooner."""
    weights: Literal["float32", "int8"] = "float32"
    """int8: smaller and faster on a CPU, a little worse."""
    compile: bool = False
    """Compile each step first: takes a minute, and saves nothing on the CPUs that we tried."""
    show_probabilities: bool = False
    """Colour each token by its surprise in bits (a table, if not in a terminal; with --jsonl all
    ids, probabilities, bits and uniform numbers)."""
    quiet: bool = False
    """Do not tell how fast it was."""
    seed: int = 0
    """The same seed gives the same text."""

    def run(self) -> None:
        from clearformer.cli.interruptible import Interrupt, Writing
        from clearformer.generate import beam_generate
        from clearformer.generate.context import NAMES, limit, require_room
        from clearformer.generate.context import usual as one_after_the_other

        self.require()
        beam = self.search()
        prompts = [given_prompt(self.prompt)] if self.file is None else read_prompts(self.file)
        writer = self.writer(self.run_folder)
        assert writer.tokenizer is not None
        task = self.task(writer, writer.tokenizer)
        draft = self.drafter()
        usual = one_after_the_other if beam is None else beam_generate.usual
        rule = NAMES[self.past_context] if self.past_context else usual(writer.config)
        full = limit(rule, writer.config)
        # The mistake in the last prompt is told before the first is written.
        for number, prompt in enumerate(prompts, 1):
            try:
                require_room(len(writer.encode(prompt)), writer.config, full)
            except ValueError as mistake:
                where = "" if self.file is None else f"{self.file}, line {number}: "
                raise ValueError(f"{where}{mistake}") from None
        clock = Clock()
        try:
            with Interrupt() as interrupt:
                writing = Writing(writer, task, self.seed, rule, draft, interrupt)
                if beam is not None:
                    self.likeliest(clock, writing, beam, prompts)
                elif self.file is None and self.samples == 1 and not self.jsonl:
                    self.live(clock, writing, prompts[0])
                else:
                    self.texts(clock, writing, prompts)
        finally:
            sys.stdout.flush()
            if not self.quiet and clock.tokens:
                clock.tell()
        if interrupt.asked:
            raise KeyboardInterrupt

    def require(self) -> None:
        """What can be said before the model is opened."""
        for name in ("batch", "samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but it must be at least 1")
        for name in ("batch", "beam"):
            if (getattr(self, name) or 0) > limits.MOST_BATCH:
                value, most = getattr(self, name), limits.MOST_BATCH
                raise ValueError(f"--{name} is {value!r:.60}, but it must be at most {most:,}")
        if self.file is not None and self.prompt is not NO_PROMPT:
            raise ValueError("give either a prompt or --file, and not both")
        if self.show_probabilities and not self.jsonl and (self.file or self.samples > 1):
            raise ValueError("--show-probabilities shows one text: add --jsonl for several")

    def live(self, clock: Clock, writing: Writing, prompt: str) -> None:
        """One text, as it comes."""
        show = shower() if self.show_probabilities else None
        text = writing.text(prompt)
        tokens = writing.tokens([text])
        first = next(tokens, None)  # what cannot be written is said before anything is
        write(prompt if show is None else "")
        try:
            for _, token in chain(() if first is None else (first,), tokens):
                clock.count()
                if show is None:
                    write(token.text)
                else:
                    show(token)
        finally:
            write("\n")
        self.complain(writing.task, text)

    def texts(self, clock: Clock, writing: Writing, prompts: list[str]) -> None:
        """Many texts, each when it is done, in the order of the prompts."""
        # All samples of a prompt together, as far as that is of use.
        together = max(1, self.batch // self.samples) * self.samples
        together = min(together, max(self.batch, MOST_TOGETHER))
        numbered = (
            (prompt, number * self.samples + sample)
            for number, prompt in enumerate(prompts)
            for sample in range(self.samples)
        )
        while some := list(islice(numbered, together)):
            texts = [writing.text(prompt, number) for prompt, number in some]
            for text in writing.whole(texts):
                clock.count(len(text.tokens))
                self.show(text)
                self.complain(writing.task, text)
            if writing.interrupt.asked:
                return

    def likeliest(self, clock: Clock, writing: Writing, beam: Beam, prompts: list[str]) -> None:
        """The best texts of a search for each prompt, in the order of the prompts."""
        from clearformer.generate.beam_generate import generate_best

        together = max(1, self.batch // beam.width)
        for place in range(0, len(prompts), together):
            found = generate_best(
                writing.writer,
                prompts[place : place + together],
                beam,
                most=self.length,
                least=self.least,
                banned=writing.task.how.banned,
                past_context=writing.rule,
                enough=lambda: writing.interrupt.asked,
            )
            for several in found:
                for sample, text in enumerate(several):
                    clock.count(len(text.tokens))
                    more = {"score": text.score}
                    if self.jsonl:
                        write_json(as_json(text, sample, more))
                    else:
                        write(as_line(text))
            if writing.interrupt.asked:
                return

    def search(self) -> Beam | None:
        """The beam that is wanted; what has no meaning with it is refused and not ignored."""
        from clearformer.generate.beam import Beam

        if self.beam is None:
            if self.length_penalty is not None:
                raise ValueError("--length-penalty is that of a beam: add --beam")
            return None
        usual = {each.name: each.default for each in fields(self)}
        for name, why in NOT_WITH_A_BEAM.items():
            if getattr(self, name) != usual[name]:
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(f"{flag} does not go with --beam, which {why}: leave one out")
        if self.past_context == "slide":
            raise ValueError(
                "--past-context slide does not go with --beam, whose versions would all be read "
                "anew at every step: stop or continue"
            )
        if self.samples > self.beam >= 1:
            raise ValueError(
                f"--samples is {self.samples}, but --beam {self.beam} follows only {self.beam}: "
                f"use a wider beam"
            )
        penalty = 1.0 if self.length_penalty is None else self.length_penalty
        return Beam(width=self.beam, penalty=penalty, best=self.samples)

    def complain(self, task: Task, text: Text) -> None:
        """A form that was cut is no form: whoever reads it should know, and what has cut it."""
        form = task.constraint
        if form is None or text.reason not in CUTS:
            return
        state = form.start
        for token in text.tokens:
            state = form.after(state, token.id)
        if not form.may_end(state):
            cut = CUTS[text.reason].format(length=self.length, tokens=len(text.tokens))
            tell(f"note: the form is not complete {cut}")

    def show(self, text: Text) -> None:
        if not self.jsonl:
            write(as_line(text))
            return
        more = numbers(text.tokens) if self.show_probabilities else {}
        write_json(as_json(text, text.row.number % self.samples, more))

    def writer(self, folder: Path) -> Writer:
        from clearformer.cli.generated import note
        from clearformer.generate.writer import Writer
        from clearformer.inference.int8 import quantize
        from clearformer.inference.packed_linear import pack, quicken
        from clearformer.runs.load import open_run

        opened = open_run(folder, verb="generate")
        note(opened.note)
        # One text at a time reads each weight once for a single vector, several for a batch.
        alone = self.file is None and self.samples == 1 and self.beam in (None, 1)
        if self.weights == "int8":
            quantize(opened.model)
        elif alone:
            quicken(opened.model)
        elif not self.compile:  # which cannot read what is packed
            pack(opened.model, max(self.batch, self.beam or 1))
        writer = Writer(opened.model, opened.config.model, opened.tokenizer)
        return writer.compiled() if self.compile else writer

    def task(self, writer: Writer, tokenizer: Tokenizer) -> Task:
        from clearformer.generate.constraints import Choices, Constraint, Expression, continuation
        from clearformer.generate.sampling import Sampling
        from clearformer.generate.sequence import Task

        if self.choices is not None and self.pattern is not None:
            raise ValueError("give either --choices or --pattern, and not both")
        if self.forced and (self.choices is not None or self.pattern is not None):
            flag = "--pattern" if self.choices is None else "--choices"
            raise ValueError(
                f"give either --forced or {flag}, and not both: each says how the text begins"
            )
        how = Sampling(
            temperature=TEMPERATURE if self.temperature is None else self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical=self.typical,
            repetition=self.repetition,
            frequency=self.frequency,
            banned=tuple(token_id(text, tokenizer) for text in self.banned),
            forced=continuation(self.forced, tokenizer, "--forced") if self.forced else (),
        )
        form: Constraint | None = None
        if self.choices is not None:
            form = Choices(split_choices(self.choices), tokenizer, how.banned)
        elif self.pattern is not None:
            form = Expression(self.pattern, tokenizer, how.banned)
        for token in how.forced:
            if token in how.banned:
                raise ValueError(f"--forced {self.forced!r} needs a token that --banned rules out")
        # A text that was cut would be none of the choices, and nobody would know.
        needed = {"--forced": [how.forced]}
        if isinstance(form, Choices):
            needed["--choices"] = sorted(form.texts, key=len)
        for flag, texts in needed.items():
            if len(texts[-1]) > self.length:
                raise ValueError(
                    f"--length is {self.length}, but {flag} needs {len(texts[-1])} tokens for "
                    f"{tokenizer.decode(list(texts[-1]))!r}"
                )
        return Task(
            how=how,
            most=self.length,
            least=self.least,
            ends=writer.ends(),
            stops=self.stop,
            constraint=form,
        )

    def drafter(self) -> Draft | None:
        from clearformer.generate.speculate import DraftModel, PromptLookup

        if self.lookup is not None and self.draft is not None:
            raise ValueError("give either --lookup or --draft, and not both")
        if self.lookup is not None:
            if self.lookup < 1:
                raise ValueError(f"--lookup is {self.lookup}, but it must be at least 1")
            return PromptLookup(tokens=self.lookup)
        return None if self.draft is None else DraftModel(self.writer(self.draft))
