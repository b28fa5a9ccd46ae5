"""Positions: order is visible, and angles and frequencies are those of the formula.

Axes: T tokens, H heads, D head width, E model width, L table length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from clearformer.verification.attention import Attention, find_attention
from clearformer.verification.checks.arithmetic import unused_parameters
from clearformer.verification.entries import finding
from clearformer.verification.findings import Finding, Place, Severity
from clearformer.verification.probe import Probe

BASE = 10_000.0
POSITION_WORDS = ("pos", "wpe", "rotary", "rope", "alibi", "relative", "sinus", "freq")


def order(probe: Probe) -> Iterator[Finding]:
    """A model of sequences can tell the order of its tokens."""
    if not probe.takes_tokens or not probe.attention:
        return
    if not _order_is_invisible(probe):
        return
    named = _position_parts(probe)
    dead = [name for name, _ in unused_parameters(probe)]
    unused = [each for each in dead if any(word in each.lower() for word in POSITION_WORDS)]
    causal = bool(probe.claim.causal)
    meant = not named and not unused
    because = (
        f": {unused[0]} is never used" if unused else f": {named[0]} has no effect" if named else ""
    )
    yield finding(
        "permutation-equivariant",
        f"tokens in another order give the same outputs in another order{because}",
        shows=f"tokens {probe.base.stream[:1].tolist()}, the first two swapped",
        right="add position embeddings, or rotate queries and keys",
        severity=(Severity.INFO if causal else Severity.WARNING) if meant else None,
    )


def _order_is_invisible(probe: Probe) -> bool:
    """Whether the first attention of the last query is blind to the order of the keys it sees."""
    inputs = probe.inputs(batch=2)
    one, _ = probe.trace(inputs)
    own = [event for event in find_attention(one) if _of_itself(event, probe)]
    seen = own[0].seen if own else None
    if seen is None:
        return False
    visible = seen[-1, :-1].nonzero().flatten().tolist()[-3:]
    shuffled = inputs.stream.clone()
    shuffled[:, visible] = inputs.stream[:, visible[1:] + visible[:1]]
    if bool((shuffled == inputs.stream).all(dim=1).any()):
        return False
    two, _ = probe.trace(inputs.with_stream(shuffled))
    other = [event for event in find_attention(two) if _of_itself(event, probe)]
    for a, b in zip(own, other, strict=False):
        if a.output is None or b.output is None or a.output.value is None or b.output.value is None:
            return False
        x, y = a.output.value, b.output.value
        axes = [axis for axis, size in enumerate(x.shape) if size == probe.length]
        if len(axes) != 1 or x.shape != y.shape:
            return False
        last = probe.length - 1
        gap = (x.select(axes[0], last) - y.select(axes[0], last)).abs().max()
        return float(gap) < 1e-9 * max(1.0, float(x.abs().max()))
    return False


def _of_itself(event: Attention, probe: Probe) -> bool:
    """Whether it is an attention of the stream over itself, not over a source."""
    return event.seen is not None and event.seen.shape == (probe.length, probe.length)


def _position_parts(probe: Probe) -> list[str]:
    named = [name for name, _ in probe.model.named_modules()]
    named += [name for name, _ in [*probe.model.named_parameters(), *probe.model.named_buffers()]]
    found = [n for n in named if any(w in n.rsplit(".", 1)[-1].lower() for w in POSITION_WORDS)]
    for op in probe.base_trace.named("embedding"):  # a table of positions that are all the same
        ids, table = op.argument(0, "input"), op.argument(1, "weight")
        if table.shape[0] > 8 and ids.shape[-1] == probe.length and len(ids.unique()) == 1:
            found.append(op.place.module)
    return found


# --- rotary ----------------------------------------------------------------------------------


def rotary(probe: Probe) -> Iterator[Finding]:
    """Rotated scores depend on distances alone, and values are not rotated."""
    events = _constant_stream(probe)
    if not events:
        return
    for event in events:
        if event.q is None or event.k is None or event.q.dim() < 3:
            return
        q, k = (_heads_first(each, probe.length) for each in (event.q, event.k))
        if q is None or k is None:
            return
        turns = float((q[..., 1:, :] - q[..., :-1, :]).abs().max()) > 1e-6
        if turns and not _is_toeplitz(q, k):
            yield finding(
                "rotary-pairs",
                "scores of equal tokens at equal distances differ: the angles do not fit the pairs "
                "that are rotated, so the rotation is none",
                event.place,
                shows=f"{probe.length} equal tokens",
                right="neighbours: repeat_interleave(angles, 2); halves: cat(angles, angles)",
            )
            return
        v = None if event.v is None else _heads_first(event.v, probe.length)
        shared = v is not None and v.shape == k.shape and bool(v.equal(k))
        if (
            turns
            and v is not None
            and not shared
            and float((v[..., 1:, :] - v[..., :-1, :]).abs().max()) > 1e-6
        ):
            yield finding(
                "rotary-on-values",
                "values of equal tokens differ by position: they are rotated too",
                event.place,
                shows=f"{probe.length} equal tokens",
                right="rotate queries and keys only",
            )
        return


def _constant_stream(probe: Probe) -> list[Attention]:
    """The attentions of equal tokens, if nothing but rotation tells their positions apart."""
    inputs = probe.inputs(batch=2)
    stream = inputs.stream[:, :1].expand_as(inputs.stream).clone()
    same = inputs.with_stream(stream)
    trace, _ = probe.trace(same)
    events = find_attention(trace)[:1]
    if events and events[0].normed:
        # A norm after the rotation keeps distances only while its weights are equal.
        trace, _ = probe.trace(same, model=probe.plain)
        events = find_attention(trace)[:1]
    if not events:
        return []
    before = trace.ops[: events[0].softmax.index]
    mixing = [op for op in before if op.name in ("conv1d", "pad", "cumsum") and op.out.dim() > 2]
    if any(op.out.is_floating_point() for op in mixing):
        return []  # equal tokens at the edge are no longer equal
    turned = {"cos", "sin", "view_as_complex", "polar"} & {op.name for op in trace.ops}
    buffers = [
        n
        for n, _ in probe.model.named_buffers()
        if any(w in n.lower() for w in ("cos", "sin", "freq", "rope", "rotary"))
    ]
    named = [
        n for n, _ in probe.model.named_modules() if "rotary" in n.lower() or "rope" in n.lower()
    ]
    if not turned and not buffers and not named:
        return []
    # The projections must see equal inputs: absolute positions would explain differences too.
    for op in trace.ops[: events[0].softmax.index]:
        if op.name in ("linear", "addmm") and op.tensors[0].dim() >= 2:
            x = op.tensors[0].detach()
            axes = [axis for axis, size in enumerate(x.shape) if size == probe.length]
            if len(axes) == 1 and probe.length > 1:
                first = x.narrow(axes[0], 0, 1)
                if float((x - first).abs().max()) > 1e-9:
                    return []
    return events


def _heads_first(x: Tensor, length: int) -> Tensor | None:
    """(..., T, D) whatever the order of the axes was."""
    axes = [axis for axis, size in enumerate(x.shape) if size == length]
    return x.movedim(axes[0], -2) if len(axes) == 1 else None


def _is_toeplitz(q: Tensor, k: Tensor) -> bool:
    if q.shape != k.shape:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3) if k.dim() == q.dim() else k
    if q.shape != k.shape:
        return True
    scores = q.double() @ k.double().transpose(-1, -2)
    gap = (scores[..., 1:, 1:] - scores[..., :-1, :-1]).abs().max()
    return float(gap) < 2e-4 * float(scores.abs().max())


# --- sinusoids -------------------------------------------------------------------------------


def sinusoids(probe: Probe) -> Iterator[Finding]:
    """Frequencies fall geometrically from 1, a pair of columns for each."""
    words = {
        f"{n}.weight"
        for n, part in probe.plain.named_modules()
        if isinstance(part, nn.Embedding) and part.num_embeddings == probe.vocabulary
    }
    tables = [
        (n, b)
        for n, b in [*probe.plain.named_buffers(), *probe.plain.named_parameters()]
        if b.is_floating_point() and n not in words
    ]
    for name, table in tables:
        if "inv_freq" in name and table.dim() == 1 and len(table) > 2:
            yield from _inverse_frequencies(name, table)
        plain = table.detach().double().squeeze()
        if plain.dim() == 2 and plain.shape[0] > 3 and plain.shape[1] >= 8:
            problem = sinusoid_problem(plain)
            if problem:
                yield _frequency(name, problem)
                return


def _frequency(name: str, problem: str) -> Finding:
    return finding(
        "sinusoid-frequency",
        f"{name}: {problem}",
        Place(name.rpartition(".")[0]),
        shows="rows 0 and 1 of the table",
        right="sin and cos of pos / 10000^(2i/E), the same frequency for each pair",
    )


def _inverse_frequencies(name: str, table: Tensor) -> Iterator[Finding]:
    steps = table.double().log().diff()
    ratio = float(steps.mean())
    even = float((steps - ratio).abs().max()) < 1e-6
    width = 2 * len(table)
    wanted = -2 / width * math.log(BASE)
    if even and math.isclose(ratio, wanted / 2, rel_tol=1e-4):
        lowest = BASE ** (2 / width - 1)
        why = f"the lowest frequency is {float(table[-1]):.3g}, not {lowest:.3g}"
        yield _frequency(name, f"the exponent has i instead of 2i: {why}")


def sinusoid_problem(table: Tensor) -> str | None:
    """What is wrong with a table (L, E) of sines and cosines; None: nothing, or it is no such."""
    zero = table[0]
    is_sine, is_cosine = zero.abs() < 1e-6, (zero - 1).abs() < 1e-6
    if not bool((is_sine | is_cosine).all()) or float(table.abs().max()) > 1.0001:
        return None
    if float(table[1:4].abs().max()) < 1e-6 or bool((table == table.round()).all()):
        return None
    width = table.shape[1]
    if bool(is_sine.all()) or bool(is_cosine.all()):
        turn = table[1].clamp(-1, 1).asin() if bool(is_sine.all()) else table[1].clamp(-1, 1).acos()
        again = (2 * turn).sin() if bool(is_sine.all()) else (2 * turn).cos()
        if len(table) < 3 or float((again - table[2]).abs().max()) > 1e-4:
            return None
        return f"all {width} columns are {'sines' if is_sine.all() else 'cosines'}"
    if int(is_sine.sum()) != int(is_cosine.sum()):
        return None
    sines, cosines = table[:, is_sine], table[:, is_cosine]
    if float((sines**2 + cosines**2 - 1).abs().max()) > 1e-4:
        return "sine and cosine of a pair have different frequencies"
    angles = torch.atan2(sines[1], cosines[1])
    if bool((angles <= 0).any()):
        return None
    steps = angles.log().diff()
    ratio, wanted = float(steps.mean()), -2 / width * math.log(BASE)
    if float((steps - ratio).abs().max()) > 1e-3:
        return None
    for factor, why in ((0.5, "i instead of 2i"), (2.0, "4i instead of 2i")):
        if math.isclose(ratio, wanted * factor, rel_tol=1e-3):
            return f"the exponent has {why}"
    if math.isclose(ratio, 0.0, abs_tol=1e-9):
        return "every pair has the same frequency"
    return None


def past_length(probe: Probe) -> Iterator[Finding]:
    """Positions past the table are refused, not reused."""
    tables = {}
    for op in probe.base_trace.named("embedding"):
        ids, table = op.argument(0, "input"), op.argument(1, "weight")
        flat = ids.flatten()
        if (
            ids.dim() <= 2
            and len(flat) >= probe.length
            and flat[: probe.length].equal(torch.arange(probe.length))
        ):
            tables[id(table)] = (op, int(table.shape[0]))
    for op, size in tables.values():
        if not probe.length < size <= 2048:
            continue
        try:
            trace, _ = probe.trace(probe.inputs(batch=1, length=size + 2))
        except Exception:
            continue
        for again in trace.named("embedding"):
            ids = again.argument(0, "input").flatten()
            same = again.argument(1, "weight") is op.argument(1, "weight")
            if same and len(ids) == size + 2 and len(ids.unique()) < len(ids):
                yield finding(
                    "positions-past-length-wrap",
                    f"{size + 2} tokens are accepted, but there are {size} positions: the last "
                    f"ones get {ids[-2:].tolist()}",
                    again.place,
                    shows=f"{size + 2} tokens",
                    right="raise an error, or cut the text to the length",
                    severity=Severity.INFO if probe.published else None,
                )
                return
