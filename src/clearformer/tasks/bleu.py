"""How close translations are to their references: BLEU and chrF by sacrebleu, and exact matches.

The signature says how a figure was computed (case, tokenization, smoothing, version); figures
with different signatures do not compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Overlap:
    """BLEU and chrF are from 0 to 100, exact is a share."""

    bleu: float
    chrf: float
    exact: float
    sentences: int
    bleu_signature: str
    chrf_signature: str


def overlap(translations: Sequence[str], references: Sequence[str]) -> Overlap:
    """Compare each translation with its one reference."""
    bleu, chrf = _metrics()
    given, wanted = list(translations), [list(references)]
    pairs = zip(translations, references, strict=True)
    right = sum(one.strip() == other.strip() for one, other in pairs)
    return Overlap(
        bleu.corpus_score(given, wanted).score,
        chrf.corpus_score(given, wanted).score,
        right / len(given),
        len(given),
        str(bleu.get_signature()),
        str(chrf.get_signature()),
    )


def sentence_chrf(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each translation by itself; their mean is near that of the corpus, not the same."""
    _, chrf = _metrics()
    pairs = zip(translations, references, strict=True)
    return [chrf.sentence_score(one, [other]).score for one, other in pairs]


def _metrics() -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise ValueError(
            "BLEU and chrF are computed by the package sacrebleu, and it is not installed: "
            "pip install sacrebleu"
        ) from None
    return BLEU(), CHRF()
