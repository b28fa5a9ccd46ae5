"""`clearformer translate RUN "two dogs are running"`: a text, or every line of a file."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from clearformer.cli.inputs import STDIN, awaiting, chosen
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import tell, write_json, write_line

if TYPE_CHECKING:
    from clearformer.generate.translate import Translation, Translator
    from clearformer.model import Model


@dataclass(frozen=True)
class Translate(ModelCommand):
    """Translate texts with a trained encoder-decoder."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to translate; - or none: the lines that are piped in."""
    file: str | None = None
    """A file with a text on each line, a .csv, .tsv, .jsonl or .json table (its column of sources),
    or - for standard input; lines are printed as soon as they are translated."""
    beam: int | None = None
    """Hypotheses that the beam search follows; 1: greedy; none: 4."""
    length_penalty: float | None = None
    """Scores are log probabilities over length to this power: above 0 favours long translations;
    none: 1."""
    best: int = 1
    """Number of translations to show for each text, with their scores."""
    temperature: float | None = None
    """Sample instead of searching: --best translations of each text; above 1 more random."""
    top_k: int | None = None
    """Sample from the k most likely tokens only."""
    top_p: float | None = None
    """Sample from the smallest set of tokens with this total probability."""
    seed: int = 0
    """Seed of the samples."""
    max_tokens: int | None = None
    """Maximum number of tokens of a translation; none: the model's limit."""
    batch_size: int | None = None
    """Texts at a time; none: 32, and 1 for standard input, which answers each line at once."""
    picture: Path | None = None
    """Draw which source tokens each target token attends to (.png, .svg or .pdf), for one text."""
    layer: int | None = None
    """The decoder layer of the picture; none: the mean of all."""
    head: int | None = None
    """The head of the picture; none: the mean of all."""
    json: bool = False
    """Print every text with its translations and their scores as a line of JSON."""

    def run(self) -> None:
        from clearformer.cli.tables import require_picture

        source = chosen(self.texts, self.file)
        if self.picture is not None and (source is not None or len(self.texts) != 1):
            count = len(self.texts) if source is None else "those of a file"
            raise ValueError(f"a picture shows one text, but there are {count}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"`batch_size` is {self.batch_size}, but it must be at least 1")
        require_picture(self.picture)
        model = self.load()
        translator = model.translator()
        size = self.batch_size or (1 if source == STDIN else 32)
        hinted = False
        first = 1
        for texts in _groups(self._texts(source, model.run_config.data.source_column), size):
            hinted = hinted or _hint(translator, texts)
            found = self._translated(model, texts, source, first)
            for text, several in zip(texts, found, strict=True):
                if self.json:
                    written = [{"text": each.text, "score": each.score} for each in several]
                    write_json({"source": text, "translations": written})
                    continue
                for each in several:
                    write_line(f"{each.score:8.4f}  {each.text}" if self.best > 1 else each.text)
            sys.stdout.flush()
            first += len(texts)
        if self.picture is not None:
            self._draw(translator, self.texts[0], found[0][0])

    def _translated(
        self, model: Model, texts: list[str], source: str | None, first: int
    ) -> list[list[Translation]]:
        try:
            return model.translations(
                texts,
                beam=self.beam,
                length_penalty=self.length_penalty,
                best=self.best,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                seed=self.seed,
                max_tokens=self.max_tokens,
                batch_size=len(texts),
            )
        except ValueError as problem:
            if source is None:
                raise
            last = first + len(texts) - 1
            raise ValueError(f"{source}, lines {first:,} to {last:,}: {problem}") from None

    def _texts(self, source: str | None, column: str) -> Iterator[str]:
        if source is None:
            yield from self.texts
        elif source == STDIN:
            with awaiting(source, "texts, one a line"):
                first = next(lines := _standard_input(), None)
            if first is None:
                from clearformer.data.files import EmptyInputError

                raise EmptyInputError
            yield from chain((first,), lines)
        else:
            from clearformer.data.read_texts import table_column, text_lines

            table = table_column(source, column)
            lines = text_lines(source)[1] if table is None else iter(table.texts)
            yield from (line.strip() for line in lines)

    def _draw(self, translator: Translator, text: str, found: Translation) -> None:
        from clearformer.explore import figures
        from clearformer.explore.alignment import alignment

        assert self.picture is not None
        source = translator.encode([text])[0]
        weights, rows, columns = alignment(translator, source, found.tokens, self.layer, self.head)
        figures.save(figures.alignment(weights, rows, columns, text), self.picture)
        tell(f"picture: {self.picture}")


def _standard_input() -> Iterator[str]:
    """The lines of standard input, each as soon as it arrives."""
    from clearformer.text.utf8 import decode

    for place, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield decode(line.removeprefix(codecs.BOM_UTF8)).strip()
        except ValueError as problem:
            raise ValueError(f"standard input, line {place}: {problem}") from None


def _groups(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    texts = iter(texts)
    while group := list(islice(texts, size)):
        yield group


def _hint(translator: Translator, texts: list[str]) -> bool:
    """Note once that a text seems to be in the target language."""
    if not any(map(translator.seems_reversed, texts)):
        return False
    tell(
        "clearformer: hint: this reads like what the model writes, and not like what it "
        "translates: is it the wrong way round?"
    )
    return True
