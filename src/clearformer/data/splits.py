"""Deterministic splits into training and validation data."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator

from clearformer.data.tables import Pairs, Table
from clearformer.data.texts import TextSource

PROBES = 32
PROBE = 64  # bytes; so long a piece does not come twice by chance


def split_text(text: TextSource, share: float, minimum: int = 1) -> tuple[TextSource, TextSource]:
    """Training and validation: the last `share` of a text, of at least `minimum` bytes.

    The end and not lines here and there: a generator is to continue a text that it does not
    know, and every line out of the middle has its neighbours in training.
    """
    _require_share(share)
    held = max(round(share * text.size), minimum + 3)  # 3: up to the end of a cut character
    cut = text.size - held
    if cut < minimum:
        raise ValueError(
            f"{text.name}: it has {text.size:,} bytes, but {minimum:,} are needed for training "
            f"and as many to evaluate on: give a longer text, or a shorter context"
        )
    near = text.part(cut, cut + 1000).read()
    line = near.find(b"\n") + 1
    if 0 < line <= held - minimum:
        cut += line  # not inside a line, if one ends nearby
    else:
        cut += next((i for i, byte in enumerate(near[:4]) if byte & 0xC0 != 0x80), 0)
    return text.part(0, cut), text.part(cut, text.size)


def split_rows(table: Table, share: float, seed: int) -> tuple[Table, Table]:
    """Training and validation: about `share` of the rows of each label.

    Which rows depends on their text and the seed, not on their order: rows may be added or
    sorted, and equal texts stay on one side.
    """
    held = _held(table, share, seed)
    rows = range(len(table))
    return table.select([r for r in rows if r not in held]), table.select(sorted(held))


def split_pairs(pairs: Pairs, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """Training and validation; whatever belongs to one source is on one side."""
    held = _held(Table(pairs.name, pairs.sources, None), share, seed)
    rows = range(len(pairs))
    return pairs.select([r for r in rows if r not in held]), pairs.select(sorted(held))


def _held(table: Table, share: float, seed: int) -> set[int]:
    """The rows that are held back."""
    _require_share(share)
    groups: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
    for row, text in enumerate(table.texts):
        label = "" if table.labels is None else table.labels[row]
        key = hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).digest()
        groups[label].append((key, row))
    held: set[int] = set()
    for label in sorted(groups):
        ordered = sorted(groups[label])
        count = max(1, round(share * len(ordered)))
        last = ordered[count - 1][0]
        chosen = {row for key, row in ordered if key <= last}
        if len(chosen) == len(ordered):
            whose = "there are" if table.labels is None else f"label {label!r} has"
            different = len({key for key, _ in ordered})
            raise ValueError(
                f"{table.name}: {whose} too few different rows ({different}) "
                f"to hold back a part: give more rows, or a validation file"
            )
        held |= chosen
    return held


def repeated_rows(training: Table, evaluation: Table) -> int:
    """How many rows of the evaluation also stand in the training, but for space at the ends."""
    known = {text.strip() for text in training.texts}
    return sum(text.strip() in known for text in evaluation.texts)


def repeated_text(training: TextSource, evaluation: TextSource) -> float:
    """The share of pieces of the evaluation, taken at equal distances, that stand in training.

    Near 1: the evaluation is a part of the training, and its figures mean nothing.
    """
    whole = evaluation.read()
    distance = max(1, (len(whole) - PROBE) // PROBES)
    starts = range(0, max(1, len(whole) - PROBE), distance)
    wanted = {whole[start : start + PROBE] for start in starts[:PROBES]}
    missing = set(wanted)
    for window in _overlapping(training, PROBE - 1):
        missing = {probe for probe in missing if probe not in window}
    return 1 - len(missing) / len(wanted)


def _overlapping(text: TextSource, overlap: int) -> Iterator[bytes]:
    """Chunks that each begin with the end of the one before."""
    before = b""
    for chunk in text.chunks():
        yield before + chunk
        before = (before + chunk)[-overlap:]


def _require_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"the share to hold back is {share}, but it must be between 0 and 1")
