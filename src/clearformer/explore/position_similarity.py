"""How alike a model's positions are: the cosine of each pair of its position vectors.

Axes: N positions, E model width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearformer.config import ALiBi, Grid, Learned, NoPosition, RelativeXL, Rotary, Sinusoidal
from clearformer.core.embedding import Embedding
from clearformer.explore import arrays
from clearformer.explore.errors import wrong_kind
from clearformer.explore.lessons import angles, similarity
from clearformer.explore.library import Opened

MOST = 256


@torch.inference_mode()
def positions(opened: Opened) -> dict[str, Any]:
    """Similarity (N, N) and length of the vectors of the first positions."""
    kind, vectors = position_vectors(opened)
    return {
        "kind": kind,
        "n": vectors.shape[0],
        "similarity": arrays.floats(similarity(vectors.float().cpu())),
        "norms": arrays.floats(vectors.norm(dim=-1)),
    }


def position_vectors(opened: Opened) -> tuple[str, Tensor]:
    """The name of the scheme, and a vector for each position (N, E)."""
    config, model = opened.config, opened.subject.model
    count = min(config.length, MOST)
    match config.position:
        case Learned() | Sinusoidal() | Grid():
            own = next(each for each in model.modules() if isinstance(each, Embedding))
            assert own.position is not None
            places = torch.arange(count, device=opened.subject.device)
            return type(config.position).__name__.lower(), own.position(places, count)
        case Rotary(base=base):
            return "rotary", angles(count, config.head_width, base)
        case RelativeXL():
            return "relative", angles(count, config.width)
        case ALiBi() | NoPosition():
            raise wrong_kind(
                f"{opened.entry.name} has no vectors for its positions: distances alone count, or "
                f"nothing does"
            )
