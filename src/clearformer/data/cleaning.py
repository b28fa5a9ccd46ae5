"""Decisions about the rows of a labelled table, each counted in a note that names its flag.

Rows without a label, empty texts, labels that differ only in spelling, duplicates, and classes too
small to be split.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from clearformer.table_options import LabelledFormat

SHOWN = 3  # examples in a note


class Row(NamedTuple):
    """A text of a table with its label, and where they are."""

    place: int  # in the file, from 0
    where: str
    text: str
    label: str | None


Note = Callable[[str], None]


def clean(name: str, rows: Sequence[Row], options: LabelledFormat, note: Note) -> list[Row]:
    """The rows that are used, by the options; `note` is told what was left out or changed."""
    kept = _labelled(name, rows, options, note)
    kept = _with_text(name, kept, options, note)
    if not kept or kept[0].label is None:
        return kept
    if options.normalize_labels:
        kept = _normalized(kept, note)
    return _unique(kept, options, note)


def _labelled(name: str, rows: Sequence[Row], options: LabelledFormat, note: Note) -> list[Row]:
    kept = [row for row in rows if row.label is None or row.label.strip()]
    left_out = [row for row in rows if row.label is not None and not row.label.strip()]
    if left_out and options.unlabelled == "error":
        raise ValueError(
            f"{name}, {left_out[0].where}: the label is empty, as in {len(left_out):,} of "
            f"{len(rows):,} rows: fill it in, or leave such rows out with --unlabelled skip"
        )
    if left_out:
        note(
            f"{rows_are(len(left_out))} without a label and {was(left_out)} skipped "
            f"(the first: {left_out[0].where}; --unlabelled error stops there)"
        )
    return kept


def _with_text(name: str, rows: Sequence[Row], options: LabelledFormat, note: Note) -> list[Row]:
    empty = [row for row in rows if not row.text.strip()]
    if not empty or options.empty == "keep":
        return list(rows)
    if options.empty == "error":
        raise ValueError(
            f"{name}, {empty[0].where}: the text is empty, as in {len(empty):,} of {len(rows):,} "
            f"rows: leave such rows out with --empty skip"
        )
    note(
        f"{rows_are(len(empty))} without a text and {was(empty)} skipped (the first: "
        f"{empty[0].where}; --empty keep keeps them)"
    )
    return [row for row in rows if row.text.strip()]


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


def _normalized(rows: Sequence[Row], note: Note) -> list[Row]:
    chosen = spellings(row.label or "" for row in rows)
    changed = Counter(row.label for row in rows if chosen[row.label or ""] != row.label)
    if changed:
        count = sum(changed.values())
        examples = [f"{old!r} to {chosen[old or '']!r}" for old, _ in changed.most_common(SHOWN)]
        more = ", ..." if len(changed) > SHOWN else ""
        note(
            f"{count:,} {'label' if count == 1 else 'labels'} changed in spelling: "
            f"{', '.join(examples)}{more} (--no-normalize-labels keeps them apart)"
        )
    return [row._replace(label=chosen[row.label or ""]) for row in rows] if changed else list(rows)


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


def _unique(rows: Sequence[Row], options: LabelledFormat, note: Note) -> list[Row]:
    seen: set[tuple[str, str | None]] = set()
    labels: dict[str, set[str | None]] = defaultdict(set)
    first: list[Row] = []
    for row in rows:
        key = (row.text.strip(), row.label)
        if key not in seen:
            first.append(row)
        seen.add(key)
        labels[key[0]].add(row.label)
    repeated, different = len(rows) - len(first), sum(len(each) > 1 for each in labels.values())
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
    return first if drop else list(rows)


def rare_classes(texts: Sequence[str], labels: Sequence[str]) -> dict[str, int]:
    """Labels with a single distinct text, of which none can be held back, with their rows."""
    distinct: dict[str, set[str]] = defaultdict(set)
    for text, label in zip(texts, labels, strict=True):
        distinct[label].add(text)
    counts = Counter(labels)
    return {label: counts[label] for label in counts if len(distinct[label]) == 1}


def rows_are(count: int) -> str:
    return "1 row is" if count == 1 else f"{count:,} rows are"


def was(rows: Sequence[object]) -> str:
    return "was" if len(rows) == 1 else "were"
