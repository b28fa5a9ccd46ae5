"""A text as an arithmetic coder sees it: what each token costs, and the interval that it leaves.

The numbers are those of `clearformer compress` with a single stream: the frequencies of the same
rule, and the state of the same coder.

Axes: V vocabulary.
"""

from __future__ import annotations

import lzma
import math
from typing import Any

import numpy as np
import torch

from clearformer.explore import token_display
from clearformer.explore.inputs import require_length, require_text_length
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import Limits
from clearformer.generate.language_model import LanguageModel
from clearformer.http_server.errors import bad_field, wrong_kind
from clearformer.inference.decoder import Decoder
from clearformer.inference.entropy_coder import PRECISION, Encoder, frequencies, interval


def coding(loaded: LoadedModel, text: str, limits: Limits) -> dict[str, Any]:
    """The tokens of a text, each with its interval and the state of the coder after it."""
    config, model = loaded.config, loaded.model
    if "translate" in config.verbs or model.tokenizer is None:
        raise wrong_kind("only a language model with a tokenizer can compress a text")
    try:
        language_model = LanguageModel(model.transformer, config, model.generation, model.tokenizer)
    except ValueError as problem:
        raise wrong_kind(str(problem)) from None
    require_text_length(text, limits)
    ids = model.tokenizer.encode(text)
    if not len(ids):
        raise bad_field("text", "the text has no token: type one")
    require_length(loaded, len(ids), limits)
    rows = _coded(language_model, ids)
    data = text.encode("utf-8", "surrogatepass")
    return {
        "tokens": [
            {**token, **row}
            for token, row in zip(token_display.tokens(model, ids.tolist()), rows, strict=True)
        ],
        "precision": PRECISION,
        "bytes": len(data),
        "code_bytes": math.ceil(sum(row["bits"] for row in rows) / 8),
        "xz_bytes": len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)),
    }


def _coded(model: LanguageModel, ids: np.ndarray) -> list[dict[str, Any]]:
    encoder, decoder = Encoder(ids, np.array([0])), model.decoder()
    table, rows = np.ones((1, model.config.vocabulary)), []  # the first token is uniform
    for place, token in enumerate(ids.tolist()):
        start, width = interval(table[0], token)
        encoder(place, table)
        words, low, span = encoder.state
        rows.append(
            {
                "bits": PRECISION - math.log2(width),
                "start": start,
                "width": width,
                "words": words,
                "low": f"{low:016x}",  # 64 bits: more than a number of JavaScript holds
                "range": f"{span:016x}",
            }
        )
        if place + 1 < len(ids):
            table = frequencies(_read(decoder, token, place, len(ids)))
    return rows


def _read(decoder: Decoder, token: int, place: int, count: int) -> torch.Tensor:
    """The logits (1, V) after a token."""
    return decoder.step([token]) if place else decoder.prefill([[token]], count - 1)
