"""One head of one layer of a model, on one text: its tokens, and every stage of its attention.

Axes: Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from clearformer.arguments import require_int
from clearformer.explore.recording import MaskChoice
from clearformer.explore.stages import KERNEL
from clearformer.explore.token_display import vocabulary_items
from clearformer.explore.trace import Trace, trace
from clearformer.explore.traced_model import as_traced_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clearformer.arguments import Text
    from clearformer.config import AnyModelConfig


class Traceable(Protocol):
    """What is asked of a model: `clearformer.Model` has it."""

    config: AnyModelConfig

    @property
    def name(self) -> str: ...

    def translate(self, texts: Any, *, beam: int) -> Any: ...


@dataclass(frozen=True)
class AttentionHead:
    """What one head computes for one text.

    Attributes:
        title (str): The model, the part, the layer and the head.
        queries (list of str): The tokens that look, one for each row.
        keys (list of str): The tokens that they look at; of cross-attention those of the source,
            and with a memory also the tokens in it.
        stages (dict): Tensors by name: ``q``, ``k``, ``v``, ``scores_raw``, ``scores_scaled``,
            ``bias`` of relative positions, ``scores_masked``, ``weights``, ``head_out``.
        trace (Trace): The trace that they come from.
    """

    title: str
    queries: list[str]
    keys: list[str]
    stages: Mapping[str, Tensor]
    trace: Trace
    part: str
    layer: int
    head: int

    @property
    def weights(self) -> Tensor:
        """The attention weights (Q, K)."""
        return self.stages["weights"]

    def __repr__(self) -> str:
        return f"<AttentionHead of {self.title}: {len(self.queries)} by {len(self.keys)} tokens>"

    def picture(self) -> Figure:
        """A figure of the weights."""
        return self.trace.picture(self.layer, self.head, self.part)


def attend(
    model: Traceable,
    text: Text,
    *,
    layer: int = 0,
    head: int = 0,
    part: str | None = None,
    target: Text | None = None,
    mask: MaskChoice = "model",
) -> AttentionHead:
    """The attention of one head of a model on a text; see `clearformer.Model.attend`."""
    config = model.config
    part = config.parts[0] if part is None else part
    if part not in config.parts:
        known = ", ".join(config.parts)
        raise ValueError(
            f"`part` is {part!r:.60}, but {model.name} has {known}: choose one of them"
        )
    layers = {"decoder": "decoder_layers", "cross": "decoder_layers"}.get(part, "layers")
    _require_below(getattr(config, layers), layer, "layer", model.name)
    _require_below(config.heads, head, "head", model.name)
    found = trace(
        model, _input(model, text, target, part), tuple(KERNEL), layers=[layer], mask=mask
    )
    stages = {name: stage[0, head] for name, stage in found.recorded[part, layer].items()}
    which = "" if len(config.parts) == 1 else f"{part} "
    return AttentionHead(
        f"{model.name}, {which}layer {layer}, head {head}",
        _shown(model, found.input.queries(part)),
        _shown(model, found.input.keys(part)),
        stages,
        found,
        part,
        layer,
        head,
    )


def _input(
    model: Traceable, text: Text, target: Text | None, part: str
) -> Text | tuple[object, object]:
    """What is traced: the text, or for a translator the source and the target."""
    if "translate" not in model.config.verbs:
        if target is not None:
            noun = f"{model.name} is {model.config.noun}"
            raise ValueError(f"`target` is for translators, but {noun}: leave it out")
        return text
    if target is not None:
        return text, target
    # The encoder does not see a target; the decoder is shown its own translation.
    return (text, text) if part == "encoder" else (text, model.translate(text, beam=1))


def _shown(model: Traceable, ids: Sequence[int]) -> list[str]:
    return [str(each["display"]) for each in vocabulary_items(as_traced_model(model), ids)]


def _require_below(limit: int, value: int, name: str, model: str) -> None:
    require_int(name, value)
    if not 0 <= value < limit:
        raise ValueError(f"{name} is {value}, but {model} has {name}s 0 to {limit - 1}")
