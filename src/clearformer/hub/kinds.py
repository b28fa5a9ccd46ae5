"""The families that can be read and written, by the model_type of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearformer.hub.bert import BERT
from clearformer.hub.family import Family
from clearformer.hub.gpt2 import GPT2
from clearformer.hub.llama import LLAMA
from clearformer.hub.marian import MARIAN
from clearformer.names import nearest

FAMILIES = (GPT2, BERT, LLAMA, MARIAN)
KINDS: Mapping[str, Family] = {kind: each for each in FAMILIES for kind in each.model_types}


def family_of(settings: Mapping[str, Any], where: str) -> Family:
    """The family that a config.json speaks of."""
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(
            f"{where} is of a model_type {kind!r:.60}, which clearformer cannot read: "
            f"{nearest(str(kind), KINDS)}"
        )
    if settings.get("quantization_config") is not None:
        raise ValueError(f"{where} is of quantized weights: take the ones that it was made from")
    if settings.get("auto_map") is not None:
        raise ValueError(f"{where} asks for code of its own (auto_map), and no code is run from it")
    return KINDS[kind]
