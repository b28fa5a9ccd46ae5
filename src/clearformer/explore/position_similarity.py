"""Cosine similarities of a model's position vectors.

Axes: N positions, E model width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearformer.config import RelativeXL, Rotary
from clearformer.core.embedding import Embedding
from clearformer.explore import arrays
from clearformer.explore.embedding_map import added_positions
from clearformer.explore.lessons import angles, similarity
from clearformer.explore.library import LoadedModel
from clearformer.http_server.errors import wrong_kind

MAX_POSITIONS = 256


@torch.inference_mode()
def positions(loaded: LoadedModel) -> dict[str, Any]:
    """The similarities (N, N) and the norms of the first position vectors."""
    kind, vectors = position_vectors(loaded)
    return {
        "kind": kind,
        "n": vectors.shape[0],
        "similarity": arrays.floats(similarity(vectors.float().cpu())),
        "norms": arrays.floats(vectors.norm(dim=-1)),
    }


def position_vectors(loaded: LoadedModel) -> tuple[str, Tensor]:
    """The name of the scheme, and a vector for each position (N, E)."""
    config, model = loaded.config, loaded.model.module
    count = min(config.length, MAX_POSITIONS)
    embedding = next(each for each in model.modules() if isinstance(each, Embedding))
    added = added_positions(config, embedding, count)
    if added is not None:
        return type(config.position).__name__.lower(), added
    match config.position:
        case Rotary(base=base):
            return "rotary", angles(count, config.resolved_head_width, base)
        case RelativeXL():
            return "relative", angles(count, config.width)
        case _:
            raise wrong_kind(
                f"{loaded.entry.name} has no position vectors: it uses distances, or no positions"
            )
