"""Masks and padding: what is hidden stays hidden, on every path.

Axes: B batch, T tokens, Q queries, K keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearformer.verification import reproduction
from clearformer.verification.attention import Attention, find_attention
from clearformer.verification.calls import TRIANGLES, Inputs
from clearformer.verification.checks.information_flow import shown
from clearformer.verification.dependence import dependence, first_leak, future
from clearformer.verification.entries import finding
from clearformer.verification.findings import Finding, Place, Severity
from clearformer.verification.padding import (
    HIDE_NAMES,
    KEEP_NAMES,
    Found,
    PaddingMask,
    find_mask,
    padded,
    real_tokens,
)
from clearformer.verification.probe import Probe
from clearformer.verification.trace import Op

MIXING = (
    "conv1d",
    "conv2d",
    "cat",
    "pad",
    "avg_pool1d",
    "max_pool1d",
    "avg_pool2d",
    "unfold",
    "roll",
    "getitem",
    "mean",
    "stack",
    "cumsum",
    "fft",
    "rfft",
    "max_pool2d",
)
WEAKEST_MASK = -30_000.0  # a hidden score above this can be reached by training


def padding(probe: Probe) -> Iterator[Finding]:
    """Padding that is masked has no effect on real tokens, left and right, and for each row."""
    if not probe.attention and not probe.per_token:
        return
    found = find_mask(probe)
    if found.mask is None:
        yield from _no_working_mask(probe, found)
        return
    mask = found.mask
    if (mask.hide and mask.name in KEEP_NAMES) or (not mask.hide and mask.name in HIDE_NAMES):
        yield _inverted(probe, mask)
        return
    # A classifier that reads its first token cannot be padded on the left.
    for left in (True, False) if probe.per_token or probe.claim.causal else (False,):
        yield from _leaks(probe, mask, left)
    yield from _rows(probe, mask)
    yield from _longer(probe, mask)
    yield from _moves(probe, mask)


def _no_working_mask(probe: Probe, found: Found) -> Iterator[Finding]:
    tried = found.tried
    if tried is None:
        return
    declared = (
        tried.name in (*KEEP_NAMES, *HIDE_NAMES) or "padding" in tried.name or "pad" in tried.name
    )
    if not found.matters:
        if getattr(probe, "supplied_mask", None) is not None or not probe.attention:
            return  # it takes a causal mask, and that one works; or there is nothing to mask
        rows = _row_mask_effect(probe, tried) if declared else None
        if rows is not None:
            yield rows
        elif declared or _pair_mask_ignored(probe):
            yield finding(
                "mask-ignored",
                f"{tried.name} has no effect: outputs are the same with and without it",
                Place(),
                shows=f"{tried.name} that hides position 0",
                right="masked positions have no weight",
                severity=None if declared else Severity.ERROR,
                reproduction=_filled_twice(probe, tried, False)
                if declared and not probe.claim.causal
                else None,
            )
        return
    if not declared:
        return
    left = bool(probe.claim.causal)  # a causal model sees no padding on the right
    inputs, real = padded(probe, 2, left, 0)
    other, _ = padded(probe, 2, left, 1)
    extra = tried.arguments(real)
    one, two = (probe.run(each, extra=extra)[0] for each in (inputs, other))
    if probe.per_token:
        one, two = one[real[0]], two[real[0]]
    if bool(one.isnan().any()):
        yield _nan(probe, tried, "a padded row gives NaN for its real tokens")
        return
    rows = _row_mask_effect(probe, tried)
    effect = probe.differs(one, two)
    if rows:
        yield rows
    elif effect:
        yield _padding_leak(probe, tried, left, effect)


def _filled_twice(probe: Probe, mask: PaddingMask, left: bool) -> str | None:
    """Two fillings of the padding, as a test in plain torch."""
    (one, real), (two, _) = padded(probe, 2, left, 0), padded(probe, 2, left, 1)
    return reproduction.padding_unseen(probe, mask.arguments(real), one, two, real)


def _pair_mask_ignored(probe: Probe) -> bool:
    """Whether a causal mask can be passed and changes nothing."""
    original = probe.form
    for each in probe.parameter("pair_mask"):
        for make in TRIANGLES:
            form = replace(original, supplied={**original.supplied, each.name: make})
            try:
                one = probe.run(probe.base, form=form)
            except Exception:
                continue
            if probe.differs(one, probe.base_output):
                return False
    return bool(probe.parameter("pair_mask"))


def _inverted(probe: Probe, mask: PaddingMask) -> Finding:
    means = "hidden" if mask.name in HIDE_NAMES else "a real token"
    does = "hides" if mask.hide else "keeps"
    return finding(
        "mask-inverted",
        f"{mask.name}: True means {means} by its name, but True {does} the position",
        shows=f"{mask.name} that marks position 0",
        right=f"{mask.name} with True = {means}",
    )


def _padding_leak(probe: Probe, mask: PaddingMask, left: bool, effect: float) -> Finding:
    side = "left" if left else "right"
    place, by_attention = _padding_origin(probe, mask, left)
    return finding(
        f"padding-leak-{side}",
        f"what stands in padding on the {side} changes real tokens, although {mask.name} hides it",
        place,
        shows=f"{mask.name} {mask.arguments(real_tokens(1, 4, 2, left))[mask.name].tolist()} over "
        f"two fillings of the padding",
        effect=effect,
        right="outputs of real tokens do not depend on padding",
        reproduction=_filled_twice(probe, mask, left),
        # Convolutions and pooling see their neighbours, padding or not: perhaps meant.
        severity=None if by_attention or not probe.per_token else Severity.INFO,
    )


def _padding_origin(probe: Probe, mask: PaddingMask, left: bool) -> tuple[Place, bool]:
    """Where padding first reaches real tokens, and whether through attention or a norm."""
    (inputs, real), (other, _) = padded(probe, 2, left, 0), padded(probe, 2, left, 1)
    one, _ = probe.trace(inputs, extra=mask.arguments(real))
    two, _ = probe.trace(other, extra=mask.arguments(real))
    if [op.name for op in one.ops] != [op.name for op in two.ops]:
        return Place(), True
    kept = slice(2, None) if left else slice(None, -2)
    for a, b in zip(one.ops, two.ops, strict=True):
        if a.value is None or b.value is None or a.value.shape != b.value.shape:
            continue
        shape = a.value.shape
        axes = [axis for axis, size in enumerate(shape) if size == probe.length]
        if len(axes) == 1 and len(shape) >= 3 and shape[0] == 3 and a.value.is_floating_point():
            index: list[Any] = [slice(None)] * len(shape)
            index[0], index[axes[0]] = 0, kept
            if float((a.value - b.value)[tuple(index)].nan_to_num().abs().max()) > 1e-6:
                return a.place, a.name not in MIXING
    return Place(), True


def _leaks(probe: Probe, mask: PaddingMask, left: bool) -> Iterator[Finding]:
    (inputs, real), (other, _) = padded(probe, 2, left, 0), padded(probe, 2, left, 1)
    extra = mask.arguments(real)
    try:
        one, two = probe.run(inputs, extra=extra), probe.run(other, extra=extra)
    except Exception:
        return
    if probe.per_token:
        one, two = one[:, real[0]], two[:, real[0]]
    if bool(one[0].isnan().any()):
        # Right padding has no effect on a causal model, unless the mask's name promises support.
        known = not left or not probe.claim.causal or mask.name == "attention_mask"
        side = "left" if left else "right"
        nan = _nan(probe, mask, f"padding on the {side} gives NaN for real tokens")
        yield nan if known else replace(nan, severity=Severity.INFO)
        return
    effect = probe.differs(one[0], two[0])
    if effect:
        yield _padding_leak(probe, mask, left, effect)


def _nan(probe: Probe, mask: PaddingMask, sentence: str) -> Finding:
    return finding(
        "nan-row",
        f"{sentence}: the softmax of a row of -inf is NaN and spreads",
        shows=f"{mask.name} that hides the first two positions of row 0",
        right="a query that sees nothing gives zeros",
    )


def _rows(probe: Probe, mask: PaddingMask) -> Iterator[Finding]:
    found = _row_mask_effect(probe, mask)
    if found:
        yield found


def _row_mask_effect(probe: Probe, mask: PaddingMask) -> Finding | None:
    """Whether the mask of one row changes the output of another."""
    inputs = probe.inputs(batch=3)
    real = torch.ones(3, inputs.length, dtype=torch.bool)
    effect, masked = 0.0, 0
    for row in (0, 1):
        other = real.clone()
        other[row, 2:4] = False
        try:
            one = probe.run(inputs, extra=mask.arguments(real))
            two = probe.run(inputs, extra=mask.arguments(other))
        except Exception:
            return None
        rest = [each for each in range(3) if each != row]
        found = max(probe.differs(one[each], two[each]) for each in rest) if len(one) == 3 else 0.0
        effect, masked = max((effect, masked), (found, row))
    if not effect:
        return None
    return finding(
        "mask-broadcast-wrong",
        f"the {mask.name} of row {masked} changes the outputs of other rows: the axes of batch "
        f"and heads are confused",
        shows=f"a batch of 3 whose {mask.name} changes in row {masked}",
        effect=effect,
        right="mask[:, None, None, :] over (B, H, Q, K); repeat_interleave for (B*H, Q, K)",
    )


def _longer(probe: Probe, mask: PaddingMask) -> Iterator[Finding]:
    """A right-padded row matches the unpadded row."""
    inputs, real = padded(probe, 2, False, 0)
    short = inputs.rows(0).with_stream(inputs.stream[:1, :-2])
    try:
        alone = probe.run(short, extra=mask.arguments(real[:1, :-2]))
        together = probe.run(inputs, extra=mask.arguments(real))
    except Exception:
        return
    got = together[0, :-2] if probe.per_token else together[0]
    effect = probe.differs(alone[0], got)
    if effect > 1e-3:
        yield finding(
            "padding-leak-right",
            "a row with two padded positions on its right gives other outputs than the row alone",
            shows=f"{_stream_shown(short.stream, probe)} alone and padded on the right",
            effect=effect,
            right="means and lengths count real tokens only",
        )


def _stream_shown(stream: Tensor, probe: Probe) -> str:
    return f"tokens {stream.tolist()}" if probe.takes_tokens else f"vectors {tuple(stream.shape)}"


def _moves(probe: Probe, mask: PaddingMask) -> Iterator[Finding]:
    """A left-padded row matches the unpadded row."""
    if not probe.per_token or not probe.takes_tokens or probe.form.source is not None:
        return
    inputs, real = padded(probe, 2, True, 0)
    short = inputs.rows(0).with_stream(inputs.stream[:1, 2:])
    try:
        alone = probe.run(short, extra=mask.arguments(real[:1, 2:]))
        together = probe.run(inputs, extra=mask.arguments(real))
    except Exception:
        return
    effect = probe.differs(alone[0], together[0, 2:])
    if effect and effect > 1e-4:
        offered = mask.positions is not None
        yield finding(
            "padding-moves-positions",
            "a row with two padded positions on its left gives other outputs than the row alone: "
            + ("position_ids are passed and not used" if offered else "positions count padding"),
            shows=f"tokens {short.stream.tolist()} alone and left-padded",
            effect=effect,
            right="positions count real tokens: attention_mask.cumsum(1) - 1",
            severity=None if offered or _positions_from_mask(probe) else Severity.INFO,
        )


def _positions_from_mask(probe: Probe) -> bool:
    """Whether a model that writes texts takes a mask, so that prompts are padded on the left."""
    named = bool(probe.parameter("padding")) and probe.accepts("attention_mask")
    return bool(probe.claim.causal) and probe.is_language_model and named and not probe.config


# --- other paths -----------------------------------------------------------------------------


def slow_paths(probe: Probe) -> Iterator[Finding]:
    """What is hidden in the plain call is hidden on other paths too."""
    if not probe.per_token:
        return
    base = probe.base_output
    causal = bool(probe.claim.causal) and not bool(future(dependence(probe)).any())
    for label, options in _paths(probe):
        try:
            output = probe.run(probe.base, **options)
            table = dependence(probe, **options) if causal else None
        except Exception:
            continue
        pair = None if table is None else first_leak(table)
        if pair is not None and table is not None:
            yield finding(
                "mask-lost-on-slow-path",
                f"{label}: output {pair[0]} changes with input {pair[1]}; without it, it does not",
                shows=shown(probe, probe.length, *pair),
                effect=float(future(table).max()),
                right="every path hides the same positions",
            )
            return
        if not options.get("train") and probe.differs(output, base) > 1e-4:
            yield finding(
                "mask-lost-on-slow-path",
                f"{label}: the outputs differ",
                effect=probe.differs(output, base),
                right="every path computes the same function",
            )
            return
    yield from _padding_in_training(probe)


def _paths(probe: Probe) -> Iterator[tuple[str, dict[str, Any]]]:
    weights = (
        "output_attentions",
        "need_weights",
        "return_attention",
        "return_weights",
        "return_attn",
        "return_attention_weights",
        "return_attn_weights",
        "attn",
    )
    for each in probe.parameters:
        if each.name in weights and not each.default:
            yield f"with {each.name}=True", {"extra": {each.name: True}}
    found = find_mask(probe).mask
    known = found is not None and ("pad" in found.name or found.name == "attention_mask")
    if found is not None and known and probe.claim.causal:
        yield f"with {found.name} that hides nothing", {"extra": _nothing_hidden(found)}
    yield "in train mode", {"train": True}


def _nothing_hidden(mask: PaddingMask) -> dict[str, Any]:
    """A mask of ones, made when the batch is known."""

    def value(inputs: Inputs) -> Any:
        real = torch.ones(inputs.batch, inputs.length, dtype=torch.bool)
        return mask.arguments(real)[mask.name]

    return {mask.name: value}


def _padding_in_training(probe: Probe) -> Iterator[Finding]:
    """A padding mask works in train mode too."""
    mask = find_mask(probe).mask
    if mask is None:
        return
    (inputs, real), (other, _) = padded(probe, 2, True, 0), padded(probe, 2, True, 1)
    extra = mask.arguments(real)
    pairs = []
    for train in (False, True):
        try:
            one = probe.run(inputs, extra=extra, train=train)
            two = probe.run(other, extra=extra, train=train)
        except Exception:
            return
        pairs.append(probe.differs(one[0, 2:], two[0, 2:]))
    if not pairs[0] and pairs[1] and pairs[1] != math.inf and not _batch_norm(probe):
        yield finding(
            "mask-lost-on-slow-path",
            f"in train mode {mask.name} no longer hides padding; in eval mode it does",
            effect=pairs[1],
            right="train and eval mode hide the same positions",
        )


def _batch_norm(probe: Probe) -> bool:
    return bool(probe.base_trace.named("batch_norm"))


# --- values of masks -------------------------------------------------------------------------


def mask_values(probe: Probe) -> Iterator[Finding]:
    """Hidden scores get -inf, or a number that no score reaches."""
    events = [*probe.attention, *_padded_attention(probe)]
    for event in events:
        weak = [each for each in event.fills if WEAKEST_MASK < each < 0 and each == each]
        zero = [op for op in event.before if _zeroed(op, event)]
        if weak:
            value = max(weak)
            yield finding(
                "finite-mask",
                f"hidden scores get {value:g}: a score {-value:g} above the others sees through "
                f"the mask, and weights can learn that",
                event.place,
                shows=f"queries and keys whose products exceed {-value:g}",
                effect=-value,
                right="masked_fill(mask, -inf), or torch.finfo(dtype).min",
            )
            return
        if zero:
            yield finding(
                "finite-mask",
                "hidden scores are set to 0, a score like any other: they still get weight",
                zero[0].place,
                right="masked_fill(mask, -inf)",
                severity=Severity.ERROR,
            )
            return


def _padded_attention(probe: Probe) -> list[Any]:
    mask = find_mask(probe).mask or find_mask(probe).tried
    if mask is None:
        return []
    inputs, real = padded(probe, 2, False, 0)
    try:
        trace, _ = probe.trace(inputs, extra=mask.arguments(real))
    except Exception:
        return []
    return list(find_attention(trace))


def _zeroed(op: Op, event: Attention) -> bool:
    """Whether an operation sets hidden scores to 0, and they get weight after all."""
    if (
        op.value is None
        or event.probabilities is None
        or op.value.shape != event.probabilities.shape
    ):
        return False
    if op.name == "masked_fill" and op.argument(2, "value") == 0:
        hidden = op.argument(1, "mask")
    elif op.name in ("tril", "triu"):
        hidden = op.value == 0
    elif op.name == "mul":
        masks = [
            each
            for each in op.tensors[1:]
            if each.numel() > 3 and bool(((each == 0) | (each == 1)).all())
        ]
        if not masks:
            return False
        hidden = masks[0] == 0
    else:
        return False
    if not isinstance(hidden, Tensor) or not bool(hidden.any()):
        return False
    hidden = hidden.bool().expand_as(op.value)
    whole = hidden.all(dim=-1, keepdim=True)  # rows that see nothing may be anything
    return bool((event.probabilities[hidden & ~whole] > 0).any())


def upside_down(probe: Probe) -> Iterator[Finding]:
    """A causal mask hides the future, not the past."""
    for event in probe.attention:
        seen = event.seen
        if seen is None or seen.shape != (probe.length, probe.length):
            continue
        looks_ahead = bool(seen.triu(1).any())
        if looks_ahead and not bool(seen.tril(-1).any()) and probe.claim.causal is not False:
            yield finding(
                "mask-inverted",
                "queries see only later keys: the causal mask is upside down",
                event.place,
                shows=shown(probe, probe.length, 0, 1),
                right="scaled_dot_product_attention: True = may see; masked_fill: True = hidden",
            )
            return


def empty_rows(probe: Probe) -> Iterator[Finding]:
    """No output is NaN without any padding."""
    if bool(probe.base_output.isnan().any()):
        rows = (
            probe.base_output.isnan().flatten(1).any(dim=1)
            if not probe.per_token
            else (probe.base_output.isnan().flatten(2).any(dim=2).any(dim=0))
        )
        where = rows.nonzero().flatten().tolist()
        event = next(
            (
                e
                for e in probe.attention
                if e.output is not None
                and e.output.value is not None
                and bool(e.output.value.isnan().any())
            ),
            None,
        )
        yield finding(
            "nan-row",
            f"outputs are NaN at positions {where}: a query sees no key at all",
            Place() if event is None else event.place,
            right="each query sees at least itself, or gives zeros",
        )
