"""Tables of texts, with or without labels, and pairs of texts."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clearformer.data.cleaning import Row, RowList, clean, rare_classes, unique
from clearformer.data.label_forms import ONE_LABEL, LabelForm, columns_hint
from clearformer.data.table_files import READ_EXTENSIONS as READ_EXTENSIONS
from clearformer.data.table_files import Record, TableFile, Value, listed, open_table, text_of
from clearformer.data.table_files import ending_of as ending_of
from clearformer.data.table_files import is_table as is_table
from clearformer.table_options import EARLIER, LabelledFormat, TableFormat


@dataclass(frozen=True)
class Table:
    """Texts, with or without labels."""

    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...] | None
    rows: tuple[int, ...] | None = field(default=None, compare=False)  # where each is in the file
    notes: tuple[str, ...] = field(default=(), compare=False)  # what was left out or changed

    def __post_init__(self) -> None:
        assert self.labels is None or len(self.labels) == len(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: Sequence[int]) -> "Table":
        """Only these rows, in this order, without the notes."""
        labels, places = self.labels, self.rows
        return Table(
            self.name,
            tuple(self.texts[row] for row in rows),
            None if labels is None else tuple(labels[row] for row in rows),
            None if places is None else tuple(places[row] for row in rows),
        )

    def with_labels_of(self, names: Sequence[str], form: LabelForm = ONE_LABEL) -> "Table":
        """The same rows, with labels in the spelling of a model's classes."""
        if self.labels is None:
            return self
        return replace(self, labels=tuple(form.matching(self.labels, names)))

    def without_rare(self, choice: str) -> "Table":
        """The table with what `choice` (keep, drop, error) does to classes of a single text."""
        rare = rare_classes(self.texts, self.labels or ())
        if not rare or len(rare) == len(set(self.labels or ())):
            return self  # nothing could be held back of any class: splitting says so
        names = listed((repr(each) for each in rare), most=5)
        what = f"{len(rare):,} classes have" if len(rare) > 1 else "1 class has"
        if choice == "error":
            raise ValueError(
                f"{self.name}: {what} a single text ({names}), of which none can be held back: "
                f"give more rows, keep them in training with --rare keep, or --rare drop"
            )
        if choice == "drop":
            assert self.labels is not None
            kept = [row for row, label in enumerate(self.labels) if label not in rare]
            note = f"{what} a single text and {_were(rare)} left out: {names} (--rare keep)"
            return replace(self.select(kept), notes=(*self.notes, note))
        note = (
            f"{what} a single text and {_were(rare)} kept in training alone, so nothing measures "
            f"{'them' if len(rare) > 1 else 'it'}: {names} (--rare drop)"
        )
        return replace(self, notes=(*self.notes, note))


def _were(rare: Iterable[str]) -> str:
    return "were" if len(list(rare)) > 1 else "was"


@dataclass(frozen=True)
class Pairs:
    """Texts and their translations."""

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sources)

    def select(self, rows: Sequence[int]) -> "Pairs":
        """Only these pairs, in this order."""
        return Pairs(
            self.name,
            tuple(self.sources[row] for row in rows),
            tuple(self.targets[row] for row in rows),
        )


def read_table(
    path: str | Path,
    text: str = "text",
    label: str | None = "label",
    options: LabelledFormat = EARLIER,
    flags: tuple[str, str] = ("--text", "--label"),
    form: LabelForm = ONE_LABEL,
    second: str | None = None,
) -> Table:
    """The columns `text` and `label` of a table; texts alone if `label` is None.

    A .json file is a list of objects, or of texts if `label` is None. `options` decide about rows
    without a label and the like; by default every row is read, and an empty label is an error.
    `flags` name the columns on the command line; an empty one is not mentioned. `form` is what the
    label column holds. With `second`, a text is that of two columns, on two lines.
    """
    file = open_table(path, options, text)
    wanted = [_Column(text, flags[0], TEXT_NAMES, options.empty == "skip")]
    if second is not None:
        wanted.append(_Column(second, "--second-column", TEXT_NAMES, options.empty == "skip"))
    rows, columns = _read_rows(file, wanted, label, options, flags[1], form)
    if not len(rows):
        header = dict.fromkeys(file.columns or ())
        for each in columns:
            if header and _found(file, "line 1", {**header}, each).spelled not in header:
                raise _no_column(file, "line 1", each, header)
        raise ValueError(f"{file.name}: there are no rows below the header")
    kept = clean(file.name, rows, options, file.notes.append, form.may_be_empty)
    if label is not None and len(kept):
        kept = form.settle(file.name, kept, options, file.notes.append)
        kept = unique(kept, options, file.notes.append)
    if not len(kept):
        raise ValueError(
            f"{file.name}: none of its {len(rows):,} rows can be used: {file.notes[-1]}"
        )
    return Table(
        file.name,
        tuple(kept.texts),
        None if label is None else tuple(each or "" for each in kept.labels),
        tuple(kept.places),
        tuple(file.notes),
    )


def _read_rows(
    file: TableFile,
    texts: list["_Column"],
    label: str | None,
    options: LabelledFormat,
    flag: str,
    form: LabelForm,
) -> tuple[RowList, list["_Column"]]:
    """The text and the label of every row, and the columns that hold them."""
    rows, columns, count = RowList(), texts, len(texts)
    for index, (where, record) in enumerate(file.records):
        if not index:
            names = () if label is None else form.columns(label, file.columns or tuple(record))
            optional = options.unlabelled != "error"
            columns = [*texts, *(_Column(name, flag, LABEL_NAMES, optional) for name in names)]
            columns = [_found(file, where, record, each) for each in columns]
        for each in columns:
            # A row of JSON may lack a field, but not all of them.
            if each.spelled not in record and (index == 0 or not each.optional):
                raise _no_column(file, where, each, record)
        values = [(each.name, record.get(each.spelled, "")) for each in columns]
        content = "\n".join(text_of(file.name, where, *value) for value in values[:count])
        joined = None if label is None else form.join(file.name, where, values[count:])
        rows.append(Row(index, where, content, joined))
    if not len(rows) and label is not None:
        names = form.columns(label, file.columns or ())
        columns = [*texts, *(_Column(name, flag, LABEL_NAMES, True) for name in names)]
    return rows, columns


def read_records(path: str | Path, text: str = "text") -> Iterator[Record]:
    """The rows of a table with their places; a text of a .json list is the column `text`."""
    return open_table(path, column=text).records


def all_records(
    path: str | Path, options: TableFormat = EARLIER, column: str = "text"
) -> tuple[tuple[str, ...], list[dict[str, Value]]]:
    """The columns of a table, and every row of it with all its fields."""
    file = open_table(path, options, column)
    records = [record for _, record in file.records]
    if file.columns is not None:
        return file.columns, records
    columns = dict.fromkeys(name for record in records for name in record)
    return tuple(columns), records


@dataclass(frozen=True)
class _Column:
    """A column that is looked for."""

    name: str
    flag: str  # that names it
    usual: tuple[str, ...]  # names that such columns often have
    optional: bool  # whether a row may lack it
    spelled: str = ""  # as in the file


TEXT_NAMES = ("text", "message", "review", "comment", "content", "body", "sentence", "description")
LABEL_NAMES = ("label", "class", "category", "topic", "target", "sentiment", "tag", "intent",
               "score", "rating", "price", "value")  # fmt: skip


def _found(file: TableFile, where: str, record: dict[str, Value], column: _Column) -> _Column:
    """The column as the file spells it; other capitals are accepted."""
    known = file.columns or tuple(record)
    near = [name for name in known if name.casefold() == column.name.strip().casefold()]
    spelled = near[0] if len(near) == 1 and column.name not in known else column.name
    if spelled in file.repeated:
        raise ValueError(
            f"{file.name}, line 1: two columns have the same name, {spelled!r}: "
            f"{listed(known)}; rename one of them"
        )
    return replace(column, spelled=spelled)


def _no_column(
    file: TableFile, where: str, column: _Column, record: dict[str, Value] | dict[str, None]
) -> ValueError:
    """The error for a missing column, with the flag that names the most likely one instead."""
    usual = [name for name in record if any(each in name.casefold() for each in column.usual)]
    longest = max(record, key=lambda name: len(str(record[name])), default="")
    guess = next(iter(usual), longest if column.usual is TEXT_NAMES else "COLUMN")
    quoted = shlex.quote(guess) if guess.isprintable() else "COLUMN"
    hint = f": {column.flag} {quoted}" if column.flag and record else ""
    if len(record) == 1 and file.columns is not None:
        hint = f"; {file.hint}"
    hint = columns_hint(column.name, record) or hint
    return ValueError(
        f"{file.name}, {where}: there is no column {column.name!r}; the columns are "
        f"{listed(record)}{hint}"
    )
