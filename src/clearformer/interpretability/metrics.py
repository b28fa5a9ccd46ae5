"""One number of a model's output: a logit difference, or the loss of a text.

Every tool measures by one of these. They run the model as it is, so inside an edit they measure
the edit, and gradients flow.

Axes: B rows, T tokens, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.core.cache import Cache
from clearformer.explore.trace import run
from clearformer.explore.traced_model import ModelInput, TracedModel, as_traced_model, encode_input
from clearformer.inference.modes import evaluating

Text = str | Tensor | Sequence[int] | tuple[object, object]
Token = str | int


@dataclass(frozen=True)
class LogitDifference:
    """The logit of `right` minus that of `wrong`, or of `right` alone; of a class or a token."""

    right: int
    wrong: int | None
    position: int = -1

    name = "logit difference"

    def __call__(self, logits: Tensor, input: ModelInput) -> Tensor:
        """Of logits (B, T, V) or (B, C): (B,)."""
        row = logits[:, self.position] if logits.dim() == 3 else logits  # (B, V)
        right = row[:, self.right]
        return right if self.wrong is None else right - row[:, self.wrong]


@dataclass(frozen=True)
class Loss:
    """The mean cross-entropy of the next tokens of a text, in nats."""

    name = "loss"

    def __call__(self, logits: Tensor, input: ModelInput) -> Tensor:
        """Of logits (B, T, V): (B,)."""
        target = input.tokens[0, input.start :] if input.target is None else input.target[0]
        target = target[1:].to(logits.device)
        rows = logits[:, :-1].transpose(1, 2)  # (B, V, T - 1)
        return F.cross_entropy(rows, target.expand(len(logits), -1), reduction="none").mean(-1)


Metric = LogitDifference | Loss


def logit_difference(
    model: object, text: Text, right: Token, wrong: Token | None = None, position: int = -1
) -> Tensor:
    """The logit of one token minus that of another, after a text.

    Args:
        model (Model or nn.Module): A model that predicts tokens or classes.
        text (str, ids, or pair of these): What it reads.
        right (str or int): The token, or the class; a string must be one token.
        wrong (str or int, optional): The other one. Default: the logit of `right` alone.
        position (int): Which position's logits. Default: -1, the last.

    Returns:
        Tensor: One number, through which gradients flow.
    """
    traced = as_traced_model(model)
    model_input = encode_input(traced, text)
    metric = make_metric(traced, model_input, right, wrong, position)
    return measure(traced, model_input, metric)[0]


def text_loss(model: object, text: Text) -> Tensor:
    """The mean cross-entropy of the next tokens of a text, in nats; gradients flow."""
    traced = as_traced_model(model)
    model_input = encode_input(traced, text)
    return measure(traced, model_input, make_metric(traced, model_input, None, None))[0]


def measure(
    traced: TracedModel,
    model_input: ModelInput,
    metric: Metric,
    caches: list[Cache] | None = None,
) -> Tensor:
    """The metric of each row of the output: (B,); `caches` as in `run`."""
    with evaluating(traced.module):
        return metric(_logits(run(traced, model_input, caches)), model_input)


def make_metric(
    traced: TracedModel,
    model_input: ModelInput,
    right: Token | None,
    wrong: Token | None,
    position: int = -1,
) -> Metric:
    """The metric for these answers; without any it is the loss of the text."""
    if right is not None:
        length = len(model_input.queries(list(traced.module.stacks)[-1]))
        if not -length <= position < length:
            raise ValueError(f"position is {position}, but the text has 0 to {length - 1}")
        other = None if wrong is None else answer_id(traced, wrong, "wrong")
        return LogitDifference(answer_id(traced, right, "right"), other, position)
    if wrong is not None:
        raise ValueError("wrong is given without right: pass both, or right alone")
    if position != -1:
        raise ValueError(f"position is {position} without right, but it is of the logit of right")
    verbs = () if traced.config is None else traced.config.verbs
    if traced.config is not None and "generate" not in verbs and "translate" not in verbs:
        raise ValueError(
            f"{traced.name or 'this model'} predicts no next token, so a text has no loss: pass "
            f"right= and wrong=, two of its classes or tokens"
        )
    if len(model_input.queries(list(traced.module.stacks)[-1])) < 2:
        raise ValueError(
            "the text has one token, so there is no next one to predict: write a longer text, or "
            "pass right=, a token whose logit is measured"
        )
    return Loss()


def answer_id(traced: TracedModel, answer: Token, name: str) -> int:
    """The id of a class or of a token given as text."""
    size = _outputs(traced)
    if isinstance(answer, bool) or not isinstance(answer, int | str):
        raise ValueError(f"{name} is {answer!r}, but it must be a token or its id")
    if isinstance(answer, int):
        if not 0 <= answer < size:
            raise ValueError(f"{name} is {answer}, but ids go from 0 to {size - 1}")
        return answer
    classes: tuple[str, ...] = getattr(getattr(traced.config, "head", None), "names", None) or ()
    if answer in classes:
        return classes.index(answer)
    if classes:
        raise ValueError(f"there is no class {answer!r}: there are {', '.join(classes)[:200]}")
    if traced.tokenizer is None:
        raise ValueError(f"{name} is a text, but the model has no tokenizer: pass a token id")
    ids = traced.tokenizer.encode(answer).tolist()
    if len(ids) != 1:
        raise ValueError(
            f"{name} is {answer!r}, which is {len(ids)} tokens, but it must be one: pass a "
            f"shorter text or an id (a word often begins with a space)"
        )
    return int(ids[0])


def _outputs(traced: TracedModel) -> int:
    head: torch.nn.Module = getattr(traced.module.head, "token_head", traced.module.head)
    return int(getattr(getattr(head, "project", None), "out_features", 1 << 62))


def _logits(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output[0] if isinstance(output, tuple) else output
