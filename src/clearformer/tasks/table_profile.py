"""Profile of a table before training: columns, classes, lengths, duplicates, and the split."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field

from clearformer import data
from clearformer.data.cleaning import label_key
from clearformer.table_options import TableOptions
from clearformer.text import train as train_tokenizer

SAMPLED = 20_000  # texts from which lengths are estimated
BINS = (8, 16, 32, 64, 128, 256, 512, 1024)
BAR = 30  # characters of the longest bar
MOST_DISTINCT = 100_000  # different values of a column that are counted
MOST_LABELS = 20  # in one line
EXAMPLES = 100  # texts that a profile keeps


@dataclass(frozen=True)
class Column:
    """A column: how many rows fill it, how many values it has, and an example."""

    name: str
    filled: int
    distinct: int
    example: str

    @property
    def different(self) -> str:
        many = self.distinct > MOST_DISTINCT
        return f"more than {MOST_DISTINCT:,}" if many else f"{self.distinct:,}"


@dataclass(frozen=True)
class TableProfile:
    """What a table holds, and what training would make of it."""

    name: str
    rows: int
    columns: tuple[Column, ...]
    texts: int
    classes: dict[str, tuple[int, int]]  # rows in the training part and in the validation part
    lengths: tuple[int, ...]  # of sampled texts, in tokens of the words tokenizer
    notes: tuple[str, ...] = field(default=())
    numbers: tuple[float, ...] = ()  # to predict
    examples: tuple[tuple[str, str], ...] = ()  # the first texts with their labels

    def lines(self) -> list[str]:
        """The profile as `clearformer data` prints it."""
        lines = [f"{self.name}: {self.rows:,} rows, {len(self.columns)} columns"]
        width = max((len(each.name) for each in self.columns), default=0)
        lines += [
            f"  {each.name:{width}}  {each.filled:,} filled, {each.different} different, such as "
            f"{each.example!r}"
            for each in self.columns[:30]
        ]
        ordered = sorted(self.classes.items())
        labels = ", ".join(f"{name} {sum(counts):,}" for name, counts in ordered[:MOST_LABELS])
        labels += ", ..." if len(ordered) > MOST_LABELS else ""
        held = self._number_line() or f"labels: {labels or 'none'}"
        lines += ["", f"{self.texts:,} texts; {held}"]
        lines += self._class_lines() + self._length_lines()
        return lines + ([""] if self.notes else []) + [f"note: {note}" for note in self.notes]

    def _number_line(self) -> str:
        if not self.numbers:
            return ""
        low, high = min(self.numbers), max(self.numbers)
        mean, spread = statistics.fmean(self.numbers), statistics.pstdev(self.numbers)
        return (
            f"numbers from {low:.6g} to {high:.6g}, mean {mean:.6g}, standard deviation "
            f"{spread:.6g}"
        )

    def _class_lines(self) -> list[str]:
        if not self.classes:
            return []
        total = sum(sum(each) for each in self.classes.values())
        width = max(len(name) for name in (*self.classes, "class"))
        lines = [f"{'class':{width}}  training  validation   share"]
        ordered = sorted(self.classes.items(), key=lambda item: -sum(item[1]))
        for name, (training, validation) in ordered[:50]:
            share = (training + validation) / total
            lines.append(f"{name:{width}}  {training:8,}  {validation:10,}  {share:6.1%}")
        if len(ordered) > 50:
            lines.append(f"... and {len(ordered) - 50:,} classes more")
        return lines

    def _length_lines(self) -> list[str]:
        if not self.lengths:
            return []
        ordered = sorted(self.lengths)
        median, high = ordered[len(ordered) // 2], ordered[int(0.95 * (len(ordered) - 1))]
        lines = [
            "",
            f"length in tokens (words): median {median:,}, 95 % are at most {high:,}, longest "
            f"{ordered[-1]:,}",
        ]
        counts, low = Counter(_bin(length) for length in self.lengths), 0
        most = max(counts.values())
        for index, top in enumerate((*BINS, None)):
            count = counts.get(index, 0)
            if count:
                name = f"over {BINS[-1]:,}" if top is None else f"{low + 1:,} to {top:,}"
                lines.append(f"  {name:>13}  {'█' * max(1, round(BAR * count / most))} {count:,}")
            low = top or low
        return lines

    def document(self) -> dict[str, object]:
        ordered = sorted(self.lengths)
        return {
            "name": self.name,
            "rows": self.rows,
            "columns": [vars(each) for each in self.columns],
            "texts": self.texts,
            "classes": {
                name: {"training": counts[0], "validation": counts[1]}
                for name, counts in self.classes.items()
            },
            "tokens": {
                "median": ordered[len(ordered) // 2] if ordered else 0,
                "longest": ordered[-1] if ordered else 0,
            },
            "numbers": None
            if not self.numbers
            else {
                "lowest": min(self.numbers),
                "highest": max(self.numbers),
                "mean": statistics.fmean(self.numbers),
                "std": statistics.pstdev(self.numbers),
            },
            "notes": list(self.notes),
        }


def _bin(length: int) -> int:
    return next((index for index, top in enumerate(BINS) if length <= top), len(BINS))


def profile_table(
    path: str,
    text: str = "text",
    label: str = "label",
    *,
    options: TableOptions = TableOptions(),
    validation_fraction: float = 0.1,
    seed: int = 0,
    length: int | None = None,
    form: data.LabelForm = data.ONE_LABEL,
) -> TableProfile:
    """Read a table as training would, and describe it; `length` is the context of a model, `form`
    what the label column holds."""
    rows, columns = _columns(path, options, text)
    table = data.read_table(path, text, label, options, form=form)
    kept = table.without_rare(options.rare) if form.stratified else table
    notes = list(kept.notes)
    try:
        training, validation = data.split_rows(
            kept, validation_fraction, seed, options.rare == "keep", form.stratified
        )
    except ValueError as problem:
        notes.append(f"it cannot be split: {problem}")
        training, validation = kept, kept.select([])
    counts = [
        Counter(part for each in some.labels or () for part in form.parts(each))
        for some in (training, validation)
    ]
    classes = {name: (counts[0][name], counts[1][name]) for name in counts[0] | counts[1]}
    notes += _remarks(training, validation, classes)
    sample = table.texts[:: max(1, len(table) // SAMPLED)]
    words = train_tokenizer("words", sample, None)
    lengths = tuple(len(ids) for ids in words.encode_many(sample))
    if length is not None:
        cut = sum(each > length for each in lengths)
        notes.append(
            f"{cut:,} of {len(lengths):,} texts have more than {length:,} tokens and would be cut"
        )
    is_number = form is data.NUMBERS
    numbers = tuple(float(each) for each in table.labels or ()) if is_number else ()
    shown = tuple(zip(table.texts[:EXAMPLES], table.labels or (), strict=False))
    return TableProfile(
        str(path), rows, columns, len(table), classes, lengths, tuple(notes), numbers, shown
    )


def _columns(path: str, options: TableOptions, text: str) -> tuple[int, tuple[Column, ...]]:
    """The number of rows, and the columns; the rows are counted as they are read, not kept."""
    file = data.open_table(path, options, text)
    found: dict[str, ColumnCount] = {}
    rows = 0
    for _, record in file.records:
        rows += 1
        for name, value in record.items():
            if name not in found:
                found[name] = ColumnCount()
            found[name].add(value)
    names = file.columns or tuple(found)
    return rows, tuple(found.get(name, ColumnCount()).column(name) for name in names)


class ColumnCount:
    """Counts the values of a column; different ones up to a limit, by their hashes."""

    def __init__(self) -> None:
        self.filled = 0
        self.example = ""
        self.seen: set[int] = set()

    def add(self, value: object) -> None:
        shown = "" if value is None else str(value)
        if not shown.strip():
            return
        if not self.filled:
            self.example = shown if len(shown) <= 50 else f"{shown[:49]}…"
        self.filled += 1
        if len(self.seen) <= MOST_DISTINCT:
            self.seen.add(hash(shown))

    def column(self, name: str) -> Column:
        return Column(name, self.filled, len(self.seen), self.example)


def _remarks(
    training: data.Table, validation: data.Table, classes: dict[str, tuple[int, int]]
) -> list[str]:
    """Leaks between the parts, few rows, and classes of very different size."""
    found = []
    leaks = data.repeated_rows(training, validation)
    if leaks:
        found.append(f"{leaks:,} of {len(validation):,} validation texts are also training texts")
    known = {_letters(text) for text in training.texts}
    near = sum(_letters(text) in known for text in validation.texts) - leaks
    if near > 0:
        found.append(
            f"{near:,} of {len(validation):,} validation texts differ from training texts only in "
            f"case, digits or punctuation: the figures may be too good"
        )
    if 0 < len(validation) < 100:
        found.append(
            f"only {len(validation):,} {'text is' if len(validation) == 1 else 'texts are'} held "
            f"back: figures on so few are rough "
            f"(--validation-fraction holds more back)"
        )
    sizes = [sum(each) for each in classes.values()]
    if len(sizes) > 1 and max(sizes) > 10 * min(sizes):
        found.append(
            f"the largest class has {max(sizes):,} rows and the smallest {min(sizes):,}: look at "
            f"macro F1, and try --class-weights balanced"
        )
    return found


def _letters(text: str) -> str:
    """A text without case, digits and punctuation."""
    return label_key("".join(each if each.isalpha() or each.isspace() else "" for each in text))
