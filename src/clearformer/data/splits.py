"""Deterministic splits into training and validation data."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clearformer.data.tables import Pairs, Table
from clearformer.data.texts import TextSource

PROBES = 32
Rows = list[int]
PROBE = 64  # bytes; a piece of this length does not occur twice by chance


def split_text(text: TextSource, share: float, minimum: int = 1) -> tuple[TextSource, TextSource]:
    """Split off the last `share` of a text, at least `minimum` bytes, for validation.

    The end rather than random lines, whose neighbours would be in the training text.
    """
    _require_share(share)
    held_out = max(round(share * text.size), minimum + 3)  # 3: the rest of a character
    cut = text.size - held_out
    if cut < minimum:
        raise ValueError(
            f"{text.name}: it has {text.size:,} bytes, but {minimum:,} are needed for training "
            f"and as many to evaluate on: give a longer text, or a shorter context"
        )
    near = text.part(cut, cut + 1000).read()
    line = near.find(b"\n") + 1
    if 0 < line <= held_out - minimum:
        cut += line  # not inside a line, if one ends nearby
    else:
        cut += next((i for i, byte in enumerate(near[:4]) if byte & 0xC0 != 0x80), 0)
    return text.part(0, cut), text.part(cut, text.size)


def split_rows(
    table: Table, share: float, seed: int, keep_rare: bool = False, stratified: bool = True
) -> tuple[Table, Table]:
    """Split off about `share` of the rows for validation; if `stratified`, of each label.

    The choice depends on the text of a row and the seed, not on the order: rows may be added or
    sorted, and equal texts stay in one part. With `keep_rare`, labels with a single text stay in
    training.
    """
    grouped = table if stratified else replace(table, labels=None)
    validation = _validation_rows(grouped, share, seed, keep_rare)
    rows = range(len(table))
    return table.select([r for r in rows if r not in validation]), table.select(sorted(validation))


def split_pairs(pairs: Pairs, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """Split off validation pairs; all pairs with the same source stay in one part."""
    validation = _validation_rows(Table(pairs.name, pairs.sources, None), share, seed)
    rows = range(len(pairs))
    return pairs.select([r for r in rows if r not in validation]), pairs.select(sorted(validation))


def split_indices(texts: Sequence[str], share: float, seed: int, name: str) -> tuple[Rows, Rows]:
    """The indices of training and of validation texts; equal texts stay in one part."""
    validation = _validation_rows(Table(name, tuple(texts), None), share, seed)
    return [row for row in range(len(texts)) if row not in validation], sorted(validation)


def _validation_rows(table: Table, share: float, seed: int, keep_rare: bool = False) -> set[int]:
    """The indices of the rows for validation."""
    _require_share(share)
    groups: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
    for row, text in enumerate(table.texts):
        label = "" if table.labels is None else table.labels[row]
        key = hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).digest()
        groups[label].append((key, row))
    validation: set[int] = set()
    for label in sorted(groups):
        ordered = sorted(groups[label])
        count = max(1, round(share * len(ordered)))
        last = ordered[count - 1][0]
        chosen = {row for key, row in ordered if key <= last}
        if len(chosen) == len(ordered):
            if keep_rare and len(groups) > 1:
                continue
            whose = "there are" if table.labels is None else f"label {label!r} has"
            different = len({key for key, _ in ordered})
            raise ValueError(
                f"{table.name}: {whose} too few different rows ({different}) "
                f"to split off a validation part: give more rows, or a validation file"
            )
        validation |= chosen
    if not validation:
        raise ValueError(
            f"{table.name}: no label has two different texts, so that none can be held back: give "
            f"more rows, or a validation file"
        )
    return validation


def share_of_rows(table: Table, share: float, seed: int, stratified: bool = True) -> Table:
    """About `share` of the rows, if `stratified` of each label, at least one; smaller shares are
    parts of larger."""
    if share >= 1:
        return table
    kept = share_of_indices(table.texts, table.labels if stratified else None, share, seed)
    return replace(table.select(kept), notes=table.notes)


def share_of_indices(
    texts: Sequence[str], labels: Sequence[str] | None, share: float, seed: int
) -> Rows:
    """The indices of about `share` of the texts of each label, at least one."""
    groups: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
    for row, text in enumerate(texts):
        label = "" if labels is None else labels[row]
        key = hashlib.sha256(f"share {seed} {text}".encode("utf-8", "surrogatepass")).digest()
        groups[label].append((key, row))
    return sorted(
        row
        for several in groups.values()
        for _, row in sorted(several)[: max(1, round(share * len(several)))]
    )


def repeated_rows(training: Table, evaluation: Table) -> int:
    """The number of evaluation rows that are also training rows, ignoring surrounding space."""
    training_texts = {text.strip() for text in training.texts}
    return sum(text.strip() in training_texts for text in evaluation.texts)


def repeated_text(training: TextSource, evaluation: TextSource) -> float:
    """The share of evenly spaced pieces of the evaluation text that occur in the training text.

    Near 1, the evaluation text is part of the training text.
    """
    content = evaluation.read()
    distance = max(1, (len(content) - PROBE) // PROBES)
    starts = range(0, max(1, len(content) - PROBE), distance)
    probes = {content[start : start + PROBE] for start in starts[:PROBES]}
    missing = set(probes)
    for window in _overlapping(training, PROBE - 1):
        missing = {probe for probe in missing if probe not in window}
    return 1 - len(missing) / len(probes)


def _overlapping(text: TextSource, overlap: int) -> Iterator[bytes]:
    """Chunks that each begin with the end of the previous one."""
    before = b""
    for chunk in text.chunks():
        yield before + chunk
        before = (before + chunk)[-overlap:]


def _require_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"the validation share is {share}, but it must be between 0 and 1")
