"""What attention computed, written down stage by stage, without a trace in the fast path.

`trace` lends every attention a kernel that computes the same and also notes each stage; model
code knows nothing of it, and everything is put back afterwards, also after an error.

Axes: B batch, H heads, Q queries, K keys, D head width.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.block import DecoderBlock
from clearformer.core.embedding import Embedding
from clearformer.core.kernels import Kernel, one_for_each_query_head, weights
from clearformer.core.masks import Mask
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.core.patterns import Causal, Full, Pattern
from clearformer.core.positions import Position

MaskChoice = Literal["model", "none", "causal"]
PATTERNS: Mapping[str, Pattern] = {"none": Full(), "causal": Causal()}


def stages(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None) -> dict[str, Tensor]:
    """Every stage from queries, keys and values to the outputs of the heads: eq. 6 to eq. 9."""
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)
    seen = mask.table(q, k)
    found = {"q": q, "k": k, "v": v}
    found["scores_raw"] = q @ k.transpose(-2, -1)  # (B, H, Q, K)  eq. 6
    found["scores_scaled"] = found["scores_raw"] / math.sqrt(q.shape[-1])  # eq. 9
    scores = found["scores_scaled"]
    if bias is not None:
        found["bias"] = bias.expand_as(scores)
        scores = scores + bias
    found["scores_masked"] = scores.masked_fill(~seen, float("-inf"))  # eq. 13
    found["weights"] = weights(q, k, mask, bias)  # eq. 7
    found["head_out"] = found["weights"] @ v  # (B, H, Q, D)  eq. 8
    return found


def basic_stages(x: Tensor, pattern: Pattern) -> dict[str, Tensor]:
    """The same stages of attention without parameters, for vectors (T, E): eq. 1 to eq. 3.

    A vector is its own query, key and value, and nothing is divided by yet.
    """
    raw = x @ x.T  # (T, T)  eq. 1
    seen = pattern.table(len(x), len(x))
    masked = raw.masked_fill(~seen, float("-inf"))
    shares = masked.softmax(dim=-1)  # eq. 2
    return {
        "q": x,
        "k": x,
        "v": x,
        "scores_raw": raw,
        "scores_scaled": raw,
        "scores_masked": masked,
        "weights": shares,
        "head_out": shares @ x,  # (T, E)  eq. 3
    }


@dataclass(frozen=True)
class Trace:
    """The stages of each attention that was recorded, and what the model put out."""

    recorded: Mapping[tuple[str, int], Mapping[str, Tensor]]  # by (part, layer)
    output: Tensor

    def get(self, stage: str, layer: int, head: int, part: str = "self") -> Tensor:
        """One stage of one head, for the one sequence that was traced."""
        if (part, layer) not in self.recorded:
            known = ", ".join(f"{part} {layer}" for part, layer in self.recorded)
            raise ValueError(f"{part} layer {layer} was not recorded: there are {known}")
        found = self.recorded[part, layer]
        if stage not in found:
            raise ValueError(f"there is no stage {stage!r}: there are {', '.join(found)}")
        heads = found[stage].shape[1]
        if not 0 <= head < heads:
            raise ValueError(f"head is {head}, but the model has heads 0 to {heads - 1}")
        return found[stage][0, head]


def trace(
    model: Transformer | Seq2Seq,
    tokens: Tensor,
    *,
    target: Tensor | None = None,
    layers: Sequence[int] | None = None,
    mask: MaskChoice = "model",
    positions: bool = True,
) -> Trace:
    """Run `tokens` (1, T) through the model and note every stage of attention.

    An encoder-decoder reads `tokens` and is told `target` (1, T), or `tokens` again.

    `mask` replaces the model's pattern (padding stays), `positions=False` takes away every
    position scheme: together they show a transformer as the set function it is.
    """
    recorded: dict[tuple[str, int], Mapping[str, Tensor]] = {}
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), _recording(model, recorded, layers, mask, positions):
            if isinstance(model, Seq2Seq):
                output = model(tokens, tokens if target is None else target)
            else:
                output = model(tokens)
    finally:
        model.train(was_training)
    return Trace(recorded, output)


def attentions(model: Transformer | Seq2Seq) -> dict[tuple[str, int], Attention]:
    """Every attention of a model by part and layer."""
    if isinstance(model, Transformer):
        return {("self", i): _attention(block) for i, block in enumerate(model.stack.blocks)}
    found = {("encoder", i): _attention(block) for i, block in enumerate(model.encoder.blocks)}
    for i, block in enumerate(model.decoder.blocks):
        assert isinstance(block, DecoderBlock)
        found["decoder", i] = block.attention
        found["cross", i] = block.cross_attention
    return found


def _attention(block: nn.Module) -> Attention:
    assert isinstance(block.attention, Attention)
    return block.attention


@contextmanager
def _recording(
    model: Transformer | Seq2Seq,
    recorded: dict[tuple[str, int], Mapping[str, Tensor]],
    layers: Sequence[int] | None,
    mask: MaskChoice,
    positions: bool,
) -> Iterator[None]:
    borrowed: list[tuple[nn.Module, str, object]] = []

    def lend(owner: nn.Module, name: str, value: object) -> None:
        borrowed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def recording_kernel(place: tuple[str, int]) -> Kernel:
        def kernel(
            q: Tensor, k: Tensor, v: Tensor, own: Mask, bias: Tensor | None, dropout: float
        ) -> Tensor:
            # Cross-attention looks at another sequence: its pattern is not up for change.
            chosen = own.pattern if place[0] == "cross" else PATTERNS.get(mask, own.pattern)
            found = stages(q, k, v, Mask(chosen, own.keep), bias)
            if layers is None or place[1] in layers:
                recorded[place] = found
            return found["head_out"]

        return kernel

    try:
        for place, attention in attentions(model).items():
            lend(attention, "kernel", recording_kernel(place))
            if not positions:
                lend(attention, "position", Position())
        if not positions:
            for module in model.modules():
                if isinstance(module, Embedding):
                    lend(module, "position", None)
        yield
    finally:
        for owner, name, value in reversed(borrowed):
            setattr(owner, name, value)
