"""What BERT is shown in training: some tokens hidden, some replaced, some left as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearformer.data.masking import MaskingPolicy, TokenMasker
from clearformer.data.rows import IGNORE
from clearformer.explore import token_display
from clearformer.explore.errors import wrong_kind
from clearformer.explore.inputs import own_ids
from clearformer.explore.library import Opened
from clearformer.explore.limits import Limits


def corrupt(opened: Opened, text: str, seed: int, limits: Limits) -> dict[str, Any]:
    """The tokens of a text with the fate of each, as the trainer decides it."""
    subject = opened.subject
    if subject.tokenizer is None or subject.tokenizer.mask is None:
        raise wrong_kind(f"{opened.entry.name} knows no [MASK]: choose a masked model")
    ids = own_ids(opened, text, None, limits)
    row = np.asarray([ids], dtype=np.int64)
    shown, targets = TokenMasker(subject.tokenizer, MaskingPolicy()).corrupt(
        row, np.ones_like(row, bool), seed, 0
    )
    rows = token_display.tokens(subject, ids)
    became = token_display.words(subject, shown[0].tolist())
    for place, each in enumerate(rows):
        each["fate"] = fate(ids[place], int(shown[0, place]), int(targets[0, place]), opened)
        each["became"] = became[place] if each["fate"] in ("mask", "random") else None
    return {"tokens": rows, "seed": seed}


def fate(before: int, after: int, target: int, opened: Opened) -> str:
    """Untouched, or hidden: behind the mask, behind another token, or behind itself."""
    if target == IGNORE:
        return "untouched"
    assert opened.subject.tokenizer is not None
    if after == opened.subject.tokenizer.mask:
        return "mask"
    return "random" if after != before else "kept"
