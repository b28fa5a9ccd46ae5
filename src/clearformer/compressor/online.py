"""Training while coding: encoder and decoder learn from every window that both know.

After a window is coded, optimizer steps are taken on it, each on a few of its streams, and the next
window is predicted by the changed weights (dynamic evaluation; Mikolov et al. 2010, Krause et al.
2018). The updates are the same bit for bit on both sides: the same batches, the same threads, no
dropout, and optimizer steps parameter by parameter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from clearformer.config import AdamW, Muon, TrainConfig
from clearformer.core.model import Batch, Transformer
from clearformer.generate.language_model import LanguageModel
from clearformer.inference.entropy_coder import Ids
from clearformer.training.optim import make_optimizers, set_lr


@dataclass(frozen=True)
class Online:
    """Settings of the training, stored in the header of a file.

    Attributes:
        learning_rate (float): After the warmup. Default: 5e-4.
        warmup (int): Updates over which the learning rate rises. Default: 20.
        updates (int): Passes over each window. Default: 1.
        batch_size (int): Streams in an optimizer step: fewer make more steps on each window.
            Default: 2.
        optimizer (str): "adamw", or "muon" for weights that have much to learn: the matrices of
            the blocks by Muon, the others by AdamW. Default: "adamw".
    """

    learning_rate: float = 5e-4
    warmup: int = 20
    updates: int = 1
    batch_size: int = 2
    optimizer: str = "adamw"

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < 1:
            raise ValueError(
                f"`learning_rate` is {self.learning_rate}, but it must be above 0 and below 1"
            )
        for name in ("warmup", "updates", "batch_size"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 10**6:
                raise ValueError(f"`{name}` is {value!r:.40}, but it must be from 1 to 1,000,000")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"`optimizer` is {self.optimizer!r:.40}, but it must be {' or '.join(OPTIMIZERS)}"
            )

    @classmethod
    def from_scratch(cls) -> Online:
        """Settings for weights that have learned nothing yet."""
        return cls(learning_rate=0.01, warmup=50, batch_size=4, optimizer="muon")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Online:
        if set(found) != set(cls.__dataclass_fields__) or not isinstance(
            found["learning_rate"], float
        ):
            raise ValueError(f"the header has unknown online settings: {dict(found)!r:.100}")
        return cls(**found)


def _adamw(module: nn.Module, learning_rate: float) -> list[Optimizer]:
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=learning_rate, betas=(0.9, 0.99), weight_decay=0.0, foreach=False
    )
    for group in optimizer.param_groups:
        group["base_lr"] = learning_rate
    return [optimizer]


def _muon(module: nn.Module, learning_rate: float) -> list[Optimizer]:
    """As `clearformer train` uses it; AdamW's learning rate is in a fixed proportion to Muon's."""
    muon = Muon(adam_learning_rate=0.3 * learning_rate, adam=AdamW(weight_decay=0.0))
    config = TrainConfig(learning_rate=learning_rate, batch_size=1, steps=1, optimizer=muon)
    return make_optimizers(module, config)


OPTIMIZERS: Mapping[str, Callable[[nn.Module, float], list[Optimizer]]] = {
    "adamw": _adamw,
    "muon": _muon,
}


class OnlineLearner:
    """A copy of a model that learns from finished windows; its original does not change."""

    def __init__(self, model: LanguageModel, settings: Online) -> None:
        weights = list(model.module.parameters())
        quantized = any(not each.is_floating_point() for each in model.module.state_dict().values())
        if quantized or any(not each.requires_grad for each in weights):
            raise ValueError(
                f"{model.config.name} has weights that cannot be trained (int8), so it cannot "
                f"learn online: use the model in float32"
            )
        self.settings = settings
        self.module: Transformer = copy.deepcopy(model.module).eval()
        self.model = replace(model, module=self.module, step=None)
        self.step = 0
        self.optimizers = OPTIMIZERS[settings.optimizer](self.module, settings.learning_rate)

    def learn(self, tokens: Ids, targets: Ids) -> None:
        """Update the weights on a window (S, T)."""
        size = self.settings.batch_size
        for _ in range(self.settings.updates):
            for first in range(0, len(tokens), size):
                rows = slice(first, first + size)
                self._step(Batch(_copied(tokens[rows]), _copied(targets[rows])))

    def _step(self, batch: Batch) -> None:
        self.step += 1
        set_lr(self.optimizers, min(1.0, self.step / self.settings.warmup))
        self.module.zero_grad(set_to_none=True)
        with torch.enable_grad():
            sums, counts = self.module.loss(batch)
            (sums.sum() / counts.sum()).backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0, foreach=False)
        for optimizer in self.optimizers:
            optimizer.step()


def _copied(ids: Ids) -> Tensor:
    return torch.from_numpy(ids.copy())
