"""`clearformer data`: lists the corpora, and shows a source before training."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from clearformer.cli.inputs import announce
from clearformer.cli.output import say, tell, write_json
from clearformer.config import TextTask
from clearformer.table_options import TableOptions

if TYPE_CHECKING:
    from clearformer.data import DataFolders, Pairs


@dataclass(frozen=True)
class Data:
    """List the corpora; check one, or a file of your own, and show how it begins; prepare it."""

    source: tyro.conf.Positional[str | None] = None
    """A corpus, a file, a folder, a glob or a table; none: list the corpora."""
    text: str = "text"
    """Column of the texts, in a table."""
    label: str = "label"
    """Column of the labels, in a table; a,b,c: several columns of 0 and 1, for multi-label."""
    task: TextTask = "classes"
    """What is to be predicted of a text: classes, multi-label or regression."""
    prepare: str | None = None
    """A preset: prepare the data as for its training, and show the first batch decoded."""
    show: int = 3
    """Number of lines or rows to show."""
    include: str | None = None
    """Which files of a folder to read, such as "*.py"; none: .txt and .md."""
    length: int | None = None
    """Context of a model in tokens: say how many texts of a table would be cut."""
    validation_fraction: float = 0.1
    """How much of a table would be held back."""
    json: bool = False
    """Print the figures as lines of JSON."""
    data_dir: Path | None = None
    """Folder with corpora; none: CLEARFORMER_DATA, then the cache, then a download."""
    table: TableOptions = TableOptions()

    def run(self) -> None:
        from clearformer import data
        from clearformer.cli.train import places

        if self.show < 0:
            raise ValueError(f"--show is {self.show}, but it must be at least 0")
        if self.source is None:
            for each in data.CORPORA.values():
                if self.json:
                    write_json({"name": each.name, "about": each.about, "parts": [*each.parts]})
                    continue
                say(f"{each.name:12} {each.about}; parts: {', '.join(each.parts)}")
            return
        where = places(self.data_dir)
        if self.prepare is not None:
            self._prepare(self.prepare, where)
            return
        corpus = data.CORPORA.get(self.source)
        if corpus is not None:
            for part in corpus.parts:
                self._show(corpus.read(part, where), f"{self.source}, {part}")
        elif "," in self.source and not Path(self.source).exists():
            self._show_pairs(*data.read_pairs(self.source))
        elif data.is_table(self.source) or self._is_json_table(self.source):
            self._show_table(self.source)
        else:
            announce(self.source, "a text")
            if Path(self.source).is_dir() and not self.json:
                for line in data.list_folder(Path(self.source), self.include).lines():
                    say(line)
            self._show(data.open_text(self.source, include=self.include), self.source)

    def _is_json_table(self, source: str) -> bool:
        """Whether a .json file, which may be a text too, is a table with these columns."""
        from clearformer import data

        try:
            return source.lower().endswith((".json", ".json.gz")) and bool(
                data.read_table(
                    source, self.text, self.label, self.table, form=data.FORMS[self.task]
                )
            )
        except ValueError:
            return False

    def _show_table(self, source: str) -> None:
        """Labelled texts, or pairs if the table has their columns."""
        from clearformer import data
        from clearformer.tasks.table_profile import profile_table

        try:
            profile = profile_table(
                source,
                self.text,
                self.label,
                options=self.table,
                validation_fraction=self.validation_fraction,
                length=self.length,
                form=data.FORMS[self.task],
            )
        except ValueError as problem:
            try:
                pairs, notes = data.read_pairs(source)
            except ValueError:
                raise problem from None
            self._show_pairs(pairs, notes)
            return
        if self.json:
            write_json(profile.document())
            return
        for line in profile.lines():
            say(line)
        if self.show:
            say()
        for text, label in profile.examples[: self.show]:
            say(f"  {label}: {text[:90]!r}")

    def _show_pairs(self, pairs: Pairs, notes: tuple[str, ...]) -> None:
        self._show(pairs, pairs.name)
        for note in notes:
            (tell if self.json else say)(f"note: {note}")

    def _prepare(self, name: str, where: DataFolders) -> None:
        """Prepare tokenizer and token files in the cache of later runs; then show one batch."""
        from clearformer.config import RunConfig
        from clearformer.runs.start import preset_config, with_task
        from clearformer.tasks import registry

        config = with_task(preset_config(name), self.task if self.task != "classes" else None)
        model, settings, train = config.model, config.data, config.train
        assert self.source is not None
        settings = replace(
            settings,
            source=self.source,
            text_column=self.text,
            label_column=self.label,
            include=self.include,
            table=self.table,
        )
        task = registry.load(RunConfig(model=model, data=settings, train=train), where)
        for note in task.notes:
            say(f"note: {note}")
        kind, size = task.tokenizer.kind, task.tokenizer.size
        say(f"tokenizer: {kind}, {size:,} entries; {task.steps_per_epoch:,} steps an epoch")
        batch = task.batch(0)
        for field in fields(batch):
            value = getattr(batch, field.name)
            for each in value if isinstance(value, tuple) else (value,):
                if each is not None:
                    say(f"batch 0, {field.name}: {tuple(each.shape)}")
        tokens = next(getattr(batch, field.name) for field in fields(batch))
        for row in tokens[: self.show]:
            # The start and end tokens of pairs come after the tokenizer's ids, and have no text.
            say(f"  {task.tokenizer.decode(row[row < size].numpy())[:90]!r}")

    def _show(self, found: object, name: str) -> None:
        from collections import Counter

        from clearformer import data

        if self.json:
            write_json(_document(found, name))
            return
        match found:
            case data.TextSource():
                say(f"{name}: {found.size:,} bytes, sha256 {found.sha256}")
                beginning = found.part(0, min(found.size, 2000)).read()
                for line in beginning.decode("utf-8", "replace").splitlines()[: self.show]:
                    say(f"  {line[:100]}")
            case data.Table():
                counts = Counter(found.labels or ())
                labels = ", ".join(f"{label} {count:,}" for label, count in sorted(counts.items()))
                say(f"{name}: {len(found):,} texts; labels: {labels or 'none'}")
                for text, label in zip(found.texts[: self.show], found.labels or (), strict=False):
                    say(f"  {label}: {text[:90]!r}")
            case data.Pairs():
                say(f"{name}: {len(found):,} pairs")
                pairs = zip(found.sources, found.targets, strict=True)
                for _, (source, target) in zip(range(self.show), pairs, strict=False):
                    say(f"  {source[:60]!r} -> {target[:60]!r}")


def _document(found: object, name: str) -> dict[str, object]:
    """The figures of a text, of labelled texts or of pairs."""
    from collections import Counter

    from clearformer import data

    match found:
        case data.TextSource():
            return {"name": name, "bytes": found.size, "sha256": found.sha256}
        case data.Table():
            return {"name": name, "texts": len(found), "labels": Counter(found.labels or ())}
        case data.Pairs():
            return {"name": name, "pairs": len(found)}
    raise AssertionError(found)
