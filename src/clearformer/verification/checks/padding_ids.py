"""Padding by id: models that compare their tokens with a padding id and make the mask themselves.

Axes: B batch, T tokens, S source tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from clearformer.verification.calls import Inputs
from clearformer.verification.entries import finding
from clearformer.verification.findings import Finding, Place
from clearformer.verification.probe import Probe
from clearformer.verification.trace import Op

PADDED = 2  # positions
MARKS = ("eos", "bos", "cls", "sep", "mask", "unk", "start", "end")


def padding_ids(probe: Probe) -> Iterator[Finding]:
    """Padding that a model finds by its id has no effect on real tokens and on other rows."""
    if not probe.attention:
        return
    for of_source in (False, True):
        compared = _compared(probe, of_source)
        if compared is not None and not _takes_mask(probe, of_source):
            op, pad = compared
            yield from _look(probe, pad, of_source, op.place)


def _compared(probe: Probe, of_source: bool) -> tuple[Op, int] | None:
    """The comparison of the tokens with a padding id, and that id."""
    ids = probe.base.source if of_source else probe.base.stream
    if ids is None or ids.is_floating_point():
        return None
    for op in probe.base_trace.named("eq", "ne"):
        number = next((each for each in op.args if type(each) is int), None)
        own = [each for each in op.tensors if _same_ids(each, ids)]
        if own and number is not None and _is_padding(probe, number):
            return op, number
    return None


def _same_ids(tensor: Tensor, ids: Tensor) -> bool:
    return tensor.shape == ids.shape and bool(tensor.equal(ids))


def _is_padding(probe: Probe, number: int) -> bool:
    """Whether an id is called padding by an attribute; 0 is, unless it is called something else."""
    names = [
        name.lower()
        for part in probe.model.modules()
        for name, value in vars(part).items()
        if type(value) is int and value == number
    ]
    if any("pad" in name for name in names):
        return True
    return number == 0 and not any(mark in name for name in names for mark in MARKS)


def _takes_mask(probe: Probe, of_source: bool) -> bool:
    """Whether the caller is to pass a mask, so that ids alone promise nothing."""
    roles = ("source_mask", "padding") if of_source else ("padding", "target_padding", "pair_mask")
    return bool(probe.parameter(*roles))


def _look(probe: Probe, pad: int, of_source: bool, place: Place) -> Iterator[Finding]:
    if not of_source and probe.per_token and probe.claim.causal:
        return  # no position sees what follows it
    inputs = probe.inputs(batch=3)
    padded, alone = _padded(inputs, pad, of_source)
    try:
        together = probe.run(padded)
        single = probe.run(alone)
        others = probe.run(inputs)
        changed = probe.run(_with_first_token_changed(probe, padded, of_source))
    except Exception:
        return
    what = "the source" if of_source else "a row"
    real = slice(None) if of_source or not probe.per_token else slice(None, -PADDED)
    if not probe.differs(together[0][real], changed[0][real]):
        yield finding(
            "mask-inverted",
            f"with padding (id {pad}) in {what}, its real tokens have no effect: they are hidden, "
            f"and padding is seen",
            place,
            shows=_shown(padded, of_source),
            right=f"hide = tokens == {pad}",
        )
        return
    coupled = max(probe.differs(others[row], together[row]) for row in (1, 2))
    if coupled:
        yield finding(
            "mask-broadcast-wrong",
            f"padding (id {pad}) in row 0 of {what if of_source else 'the batch'} changes the "
            f"outputs of other rows",
            place,
            shows=_shown(padded, of_source),
            effect=coupled,
            right="each row is masked with its own mask",
        )
        return
    effect = probe.differs(single[0], together[0][real])
    if effect > 1e-6:
        yield finding(
            "padding-leak-right",
            f"padding (id {pad}) behind {what} changes the outputs, although the model looks for "
            f"it ({place.line})",
            place,
            shows=f"{_shown(padded, of_source)}, with the padding and without",
            effect=effect,
            right="attention, means and lengths leave padding out, in every layer",
        )


def _padded(inputs: Inputs, pad: int, of_source: bool) -> tuple[Inputs, Inputs]:
    """The batch with padding at the end of row 0, and row 0 without it."""
    ids = inputs.source if of_source else inputs.stream
    assert ids is not None
    filled = ids.clone()
    filled[0, -PADDED:] = pad
    if of_source:
        return replace(inputs, source=filled), replace(inputs.rows(0), source=ids[:1, :-PADDED])
    return inputs.with_stream(filled), inputs.rows(0).with_stream(ids[:1, :-PADDED])


def _with_first_token_changed(probe: Probe, inputs: Inputs, of_source: bool) -> Inputs:
    if not of_source:
        return probe.change(inputs, 0, 0)
    assert inputs.source is not None
    source = inputs.source.clone()
    others = (int(each) for each in probe.ordinary_ids if each not in source[0])
    source[0, 0] = next(others)
    return replace(inputs, source=source)


def _shown(inputs: Inputs, of_source: bool) -> str:
    ids = inputs.source if of_source else inputs.stream
    assert isinstance(ids, torch.Tensor)
    return f"{'source' if of_source else 'tokens'} {ids[:1].tolist()}"
