"""BLEU and chrF of translations, computed by sacrebleu, and the share of exact matches.

A signature records how a score was computed (case, tokenization, smoothing, version); scores with
different signatures are not comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearformer.arguments import BleuTokenize


@dataclass(frozen=True)
class Overlap:
    """Scores of translations: BLEU and chrF from 0 to 100, exact matches from 0 to 1."""

    bleu: float
    chrf: float
    exact: float
    sentences: int
    bleu_signature: str
    chrf_signature: str
    bleu_lowercase: float  # as papers on Multi30k print it
    bleu_lowercase_signature: str


def overlap(
    translations: Sequence[str], references: Sequence[str], tokenize: BleuTokenize = "13a"
) -> Overlap:
    """Compare each translation with its single reference."""
    bleu, chrf = _metrics(tokenize)
    lowercase, _ = _metrics(tokenize, lowercase=True)
    pairs = zip(translations, references, strict=True)
    exact = sum(translation.strip() == reference.strip() for translation, reference in pairs)
    return Overlap(
        bleu.corpus_score(list(translations), [list(references)]).score,
        chrf.corpus_score(list(translations), [list(references)]).score,
        exact / len(translations),
        len(translations),
        str(bleu.get_signature()),
        str(chrf.get_signature()),
        lowercase.corpus_score(list(translations), [list(references)]).score,
        str(lowercase.get_signature()),
    )


def sentence_chrf(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each translation; their mean is close to the chrF of the corpus, but not equal."""
    _, chrf = _metrics()
    pairs = zip(translations, references, strict=True)
    return [chrf.sentence_score(translation, [reference]).score for translation, reference in pairs]


def _metrics(tokenize: BleuTokenize = "13a", lowercase: bool = False) -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise ValueError(
            "BLEU and chrF need the package sacrebleu, which is not installed: "
            "pip install sacrebleu"
        ) from None
    # `force` silences a warning about references that look tokenized.
    force = tokenize == "none"
    return BLEU(lowercase=lowercase, tokenize=tokenize, force=force), CHRF()
