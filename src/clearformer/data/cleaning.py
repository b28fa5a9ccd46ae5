"""Decisions about the rows of a labelled table, each counted in a note that names its flag.

Rows without a label, empty texts, labels that differ only in spelling, duplicates, and classes too
small to be split.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from clearformer.table_options import LabelledFormat

SHOWN = 3  # examples in a note


class Row(NamedTuple):
    """A text of a table with its label, and where they are."""

    place: int  # in the file, from 0
    where: str
    text: str
    label: str | None


class RowList:
    """Many rows in little memory: beside its text a row takes some 32 bytes.

    Equal labels are one string, and a place such as "line 12" is its number.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.texts: list[str] = []
        self.labels: list[str | None] = []
        self.places = array("q")
        self._numbers = array("q")
        self._units: list[str] = []  # of the places; more than one only in tests
        self._same: dict[str | None, str | None] = {}
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        unit, _, number = row.where.rpartition(" ")
        if not self._units:
            self._units = [unit]
        assert unit == self._units[0], "a file counts its rows in one way"
        self.texts.append(row.text)
        self.labels.append(self._same.setdefault(row.label, row.label))
        self.places.append(row.place)
        self._numbers.append(int(number))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Row:
        where = f"{self._units[0]} {self._numbers[index]}"
        return Row(self.places[index], where, self.texts[index], self.labels[index])

    def __iter__(self) -> Iterator[Row]:
        return map(self.__getitem__, range(len(self)))


Note = Callable[[str], None]


def clean(
    name: str, rows: RowList, options: LabelledFormat, note: Note, may_keep: bool = False
) -> RowList:
    """The rows with a label and a text, by the options; `note` is told what was left out.

    With `may_keep` a row without a label has a meaning: none of several labels applies.
    """
    return _with_text(name, _labelled(name, rows, options, note, may_keep), options, note)


def _labelled(
    name: str, rows: RowList, options: LabelledFormat, note: Note, may_keep: bool
) -> RowList:
    left_out = [row for row in rows if row.label is not None and not row.label.strip()]
    if not left_out or options.unlabelled == "keep":
        return rows
    if options.unlabelled == "error":
        raise ValueError(
            f"{name}, {left_out[0].where}: the label is empty, as in {len(left_out):,} of "
            f"{len(rows):,} rows: fill it in, or leave such rows out with --unlabelled skip"
        )
    note(
        f"{rows_are(len(left_out))} without a label and {was(left_out)} skipped "
        f"(the first: {left_out[0].where}; --unlabelled error stops there"
        f"{', keep takes them as texts that no label applies to' if may_keep else ''})"
    )
    return RowList(row for row in rows if row.label is None or row.label.strip())


def _with_text(name: str, rows: RowList, options: LabelledFormat, note: Note) -> RowList:
    empty = [row for row in rows if not row.text.strip()]
    if not empty or options.empty == "keep":
        return rows
    if options.empty == "error":
        raise ValueError(
            f"{name}, {empty[0].where}: the text is empty, as in {len(empty):,} of {len(rows):,} "
            f"rows: leave such rows out with --empty skip"
        )
    note(
        f"{rows_are(len(empty))} without a text and {was(empty)} skipped (the first: "
        f"{empty[0].where}; --empty keep keeps them)"
    )
    return RowList(row for row in rows if row.text.strip())


def label_key(label: str) -> str:
    """What labels that differ only in case or spaces have in common."""
    return " ".join(label.split()).casefold()


def number_key(label: str) -> str:
    """The same for whole numbers, which a spreadsheet may write as 1 or 1.0."""
    return str(int(float(label)))


def _is_whole(label: str) -> bool:
    try:
        return float(label).is_integer() and abs(float(label)) < 2**53
    except (ValueError, OverflowError):
        return False


def spellings(labels: Iterable[str]) -> dict[str, str]:
    """Every spelling of a label, with the most frequent one of those that mean the same."""
    counts = Counter(labels)
    whole = all(map(_is_whole, counts))
    groups: dict[str, list[str]] = defaultdict(list)
    for label in counts:
        groups[number_key(label) if whole else label_key(label)].append(label)
    chosen = {}
    for key, several in groups.items():
        best = max(several, key=lambda each: counts[each])
        best = key if whole and len(several) > 1 else best.strip()
        chosen.update(dict.fromkeys(several, best))
    return chosen


def normalized(rows: RowList, note: Note) -> RowList:
    """The rows with labels that differ only in case or spaces merged."""
    chosen = spellings(row.label or "" for row in rows)
    if not merge_spellings((row.label or "" for row in rows), chosen, note):
        return rows
    return RowList(row._replace(label=chosen[row.label or ""]) for row in rows)


def merge_spellings(labels: Iterable[str], chosen: Mapping[str, str], note: Note) -> bool:
    """Note which labels change in spelling; whether any does."""
    changed = Counter(label for label in labels if chosen[label] != label)
    if changed:
        count = sum(changed.values())
        examples = [f"{old!r} to {chosen[old]!r}" for old, _ in changed.most_common(SHOWN)]
        more = ", ..." if len(changed) > SHOWN else ""
        note(
            f"{count:,} {'label' if count == 1 else 'labels'} changed in spelling: "
            f"{', '.join(examples)}{more} (--no-normalize-labels keeps them apart)"
        )
    return bool(changed)


def matching_labels(labels: Sequence[str], names: Sequence[str]) -> list[str]:
    """Labels in the spelling of a model's classes, where they differ only in case or spaces."""
    whole = all(map(_is_whole, names))
    known: dict[str, list[str]] = defaultdict(list)
    for name in names:
        known[number_key(name) if whole else label_key(name)].append(name)
    found = []
    for label in labels:
        key = number_key(label) if whole and _is_whole(label) else label_key(label)
        several = [] if label in names else known.get(key, [])
        found.append(several[0] if len(several) == 1 else label)
    return found


def unique(rows: RowList, options: LabelledFormat, note: Note) -> RowList:
    """Note, and drop if the options say so, rows that repeat the text and label of another."""
    first: dict[str, str | None] = {}  # the label of a text where it comes first
    others: dict[str, set[str | None]] = defaultdict(set)  # further labels of the same text
    repeats: set[int] = set()
    for index, (text, label) in enumerate(zip(rows.texts, rows.labels, strict=True)):
        text = text.strip()
        if text not in first:
            first[text] = label
        elif first[text] == label or label in others.get(text, ()):
            repeats.add(index)
        else:
            others[text].add(label)
    repeated, different = len(repeats), len(others)
    drop = options.duplicates == "drop"
    if repeated:
        other = "keep keeps them" if drop else "drop leaves them out"
        done = "left out" if drop else "kept, all in the same part"
        note(
            f"{repeated:,} {'row repeats' if repeated == 1 else 'rows repeat'} the text and label "
            f"of an earlier row and "
            f"{'was' if repeated == 1 else 'were'} {done} (--duplicates {other})"
        )
    if different:
        note(
            f"{different:,} {'text has' if different == 1 else 'texts have'} different labels in "
            f"different rows: no model can get all of them right"
        )
    if not drop or not repeats:
        return rows
    return RowList(row for index, row in enumerate(rows) if index not in repeats)


def rare_classes(texts: Sequence[str], labels: Sequence[str]) -> dict[str, int]:
    """Labels with a single distinct text, of which none can be held back, with their rows."""
    first: dict[str, str] = {}
    several: set[str] = set()
    for text, label in zip(texts, labels, strict=True):
        if first.setdefault(label, text) != text:
            several.add(label)
    counts = Counter(labels)
    return {label: counts[label] for label in counts if label not in several}


def rows_are(count: int) -> str:
    return "1 row is" if count == 1 else f"{count:,} rows are"


def was(rows: Sequence[object]) -> str:
    return "was" if len(rows) == 1 else "were"
