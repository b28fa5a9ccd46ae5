"""Information flow: what an output may depend on.

Axes: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from clearformer.verification import reproduction
from clearformer.verification.attention import Attention, find_attention
from clearformer.verification.dependence import (
    Origin,
    dependence,
    first_leak,
    future,
    leak_origin,
    same_inputs,
)
from clearformer.verification.entries import finding
from clearformer.verification.findings import Finding, Place, Severity
from clearformer.verification.probe import Probe
from clearformer.verification.trace import Op

NORMS = (
    "layer_norm",
    "rms_norm",
    "group_norm",
    "instance_norm",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "native_layer_norm",
)
POOLS = ("mean", "sum", "amax", "max", "logsumexp", "cumsum", "prod", "median")


def shown(probe: Probe, length: int, output: int, changed: int) -> str:
    """The smallest input that shows a dependence, in words."""
    inputs = probe.inputs(batch=2, length=length)
    if not probe.takes_tokens:
        return f"random vectors (1, {length}, {probe.width}); change position {changed}"
    before = inputs.stream[0].tolist()
    after = probe.change(inputs, 0, changed).stream[0].tolist()
    return f"tokens {[before]} and {[after]}: output {output} differs"


def future_leak(probe: Probe) -> Iterator[Finding]:
    """No output depends on later inputs, in eval and in train mode, at several lengths."""
    if not probe.claim.causal or not probe.per_token:
        return
    for length in _lengths(probe):
        try:
            table = dependence(probe, length)
        except Exception:
            continue  # a length that the model does not take
        table[:, : probe.claim.prefix] = 0  # a prefix may be seen by all
        pair = first_leak(table)
        if pair is not None:
            yield _leak(probe, table, pair, length)
            return


def _lengths(probe: Probe) -> list[int]:
    window = probe.claim.window or 0
    more = [probe.length, 12, 2, window + 1, window + 3, 16]
    return [each for each in dict.fromkeys(more) if 1 < each <= 40]


def _leak(probe: Probe, table: Tensor, pair: tuple[int, int], length: int) -> Finding:
    output, changed = pair
    origin = leak_origin(probe, changed, length=length)
    effect = float(future(table).max())
    name, cause = _named(probe, origin)
    ahead = int(future(table).nonzero().diff(dim=1).max())
    far = f"up to {ahead} tokens ahead" if ahead > 1 else "one token ahead"
    return finding(
        name,
        f"{cause}output {output} changes with input {changed} (it sees {far}; claimed causal: "
        f"{probe.claim.reason})",
        Place() if origin is None else origin.op.place,
        shows=shown(probe, length, output, changed),
        effect=effect,
        right="outputs up to i are the same whatever comes after i",
        reproduction=reproduction.no_effect(probe, length, changed, float(table[output, changed])),
    )


def _named(probe: Probe, origin: Origin | None) -> tuple[str, str]:
    if origin is None:
        return "future-leak", ""
    op = origin.op
    inside = op.place.module.rsplit(".", 1)[-1].lower()
    if op.name == "batch_norm":
        return "future-leak-through-batch", "batch statistics mix positions: "
    if op.name in NORMS or _from(origin, NORMS):
        return "future-leak-through-norm", "a norm takes its statistics over time: "
    around = origin.trace.ops[max(0, op.index - 5) : op.index + 7]
    if (op.name in POOLS or _from(origin, POOLS)) and any(
        each.name in ("std", "var", "rsqrt", "var_mean") for each in around
    ):
        return "future-leak-through-norm", "a norm takes its statistics over time: "
    weighted = any(each.output is op for each in _attention(origin))
    if op.name in POOLS or (_from(origin, POOLS) and not weighted and "norm" not in inside):
        return "future-leak-through-pooling", f"{op.name} over time mixes positions: "
    if "norm" in inside:
        return "future-leak-through-norm", "a norm takes its statistics over time: "
    return "future-leak", ""


def _attention(origin: Origin) -> list[Attention]:
    return find_attention(origin.trace)


def _from(origin: Origin, names: tuple[str, ...]) -> bool:
    """Whether one of the operands was just made by one of these operations."""
    for tensor in origin.op.tensors:
        current: Tensor | None = tensor
        before = origin.op.index
        for _ in range(4):
            made = None if current is None else origin.trace.producer(current, before)
            if made is None:
                break
            if made.name in names and _no_time_axis(origin, made):
                return True
            if made.name in ("linear", "matmul", "bmm", "embedding", "softmax"):
                break
            before, current = made.index, (made.tensors[0] if made.tensors else None)
    return False


def _no_time_axis(origin: Origin, made: Op) -> bool:
    """Whether positions were reduced: a norm over the width alone keeps them."""
    return made.value is None or origin.length not in made.value.shape


def leak_in_training(probe: Probe) -> Iterator[Finding]:
    """No later input or other row is seen in train mode either (batch statistics)."""
    if not probe.per_token:
        return
    try:
        eval_table, table = dependence(probe), dependence(probe, train=True)
    except Exception:
        return
    table[:, : probe.claim.prefix] = eval_table[:, : probe.claim.prefix] = 0
    coupled = row_coupling(probe, train=True)
    norms = probe_norms(probe)
    if probe.claim.causal and not future(eval_table).any() and future(table).any():
        output, changed = first_leak(table) or (0, 1)
        name = "future-leak-through-batch" if coupled else "mask-lost-on-slow-path"
        if norms and not coupled:
            name = "future-leak-through-norm"
        origin = leak_origin(probe, changed, train=True)
        yield finding(
            name,
            f"in train mode output {output} changes with input {changed}, in eval mode it does "
            f"not" + (f": {norms} uses statistics of the batch" if norms and coupled else ""),
            Place() if origin is None else origin.op.place,
            shows=shown(probe, probe.length, output, changed),
            effect=float(future(table).max()),
            right="train and eval mode hide the same positions",
            reproduction=reproduction.no_effect(
                probe, probe.length, changed, float(table[output, changed]), train=True
            ),
        )
    elif coupled and not row_coupling(probe):
        yield finding(
            "batch-coupling",
            "in train mode a row depends on the other rows of the batch"
            + (f" ({norms})" if norms else ""),
            effect=coupled,
            severity=Severity.INFO if norms else Severity.ERROR,
        )


def probe_norms(probe: Probe) -> str:
    """The first module with batch statistics, if there is one."""
    kinds = (torch.nn.modules.batchnorm._BatchNorm,)
    return next((name for name, part in probe.model.named_modules() if isinstance(part, kinds)), "")


def row_coupling(probe: Probe, **options: object) -> float:
    """How much the first row changes with the others; 0 = not at all."""
    inputs = probe.inputs(batch=3)
    other = same_inputs(probe, inputs, 0, 1)
    one = probe.run(inputs, **options)
    two = probe.run(other, **options)
    return max(probe.differs(one[row], two[row]) for row in (0, 2)) if len(one) == 3 else 0.0


def batch_coupling(probe: Probe) -> Iterator[Finding]:
    """A row does not depend on its neighbours in the batch."""
    effect = row_coupling(probe)
    if not effect:
        return
    alone = probe.inputs(batch=3)
    time_too = bool(dependence(probe).fill_diagonal_(0).any()) if probe.per_token else True
    axis = (
        ""
        if time_too
        else (
            ", and positions of one row do not see each other: attention runs over the batch axis "
            "(batch_first?)"
        )
    )
    yield finding(
        "batch-coupling",
        f"rows change when only row 1 is replaced{axis}",
        _coupled_place(probe),
        shows=f"two batches of {tuple(alone.stream.shape)} that differ in row 1",
        effect=effect,
        right="each row gives the same output as alone",
        reproduction=reproduction.rows_apart(probe, effect),
    )


def _coupled_place(probe: Probe) -> Place:
    """The first operation in which row 0 changes with row 1."""
    inputs = probe.inputs(batch=3)
    one, _ = probe.trace(inputs)
    two, _ = probe.trace(same_inputs(probe, inputs, 0, 1))
    if [op.name for op in one.ops] != [op.name for op in two.ops]:
        return Place()
    for a, b in zip(one.ops, two.ops, strict=True):
        if a.value is None or b.value is None or a.value.shape != b.value.shape:
            continue
        if a.value.dim() >= 2 and a.value.shape[0] == 3 and a.value.is_floating_point():
            gap = (a.value[[0, 2]] - b.value[[0, 2]]).nan_to_num().abs()
            if gap.numel() and float(gap.max()) > 1e-6:
                return a.place
    return Place()


def reach(probe: Probe) -> Iterator[Finding]:
    """Every input that an output may see has an effect on it."""
    if not probe.per_token or probe.claim.causal is None or not probe.attention:
        return
    table = dependence(probe) > 0
    size = probe.length
    wanted = torch.ones(size, size, dtype=torch.bool)
    wanted = wanted.tril() if probe.claim.causal else wanted
    if probe.claim.window is not None or probe.claim.sparse is not None:
        return
    blind = _blind_to_itself(probe) if probe.claim.causal else None
    if blind is not None:
        yield finding(
            "reach-too-short",
            "a position does not attend to itself: the mask hides the diagonal too",
            blind,
            shows=shown(probe, probe.length, 1, 1),
            right="position i sees 0 to i",
        )
        return
    missing = (wanted & ~table).nonzero().tolist()
    if missing:
        output, unseen = missing[0]
        yield finding(
            "reach-too-short",
            f"output {output} does not depend on input {unseen} ({len(missing)} of "
            f"{int(wanted.sum())} pairs are not connected; claimed: {probe.claim.reason})",
            shows=shown(probe, probe.length, output, unseen),
            right="every position in reach has an effect",
            reproduction=reproduction.has_effect(probe, output, unseen),
        )


def _blind_to_itself(probe: Probe) -> Place | None:
    for event in probe.attention:
        seen = event.seen
        if seen is None or seen.shape != (probe.length, probe.length):
            continue
        if not seen.triu(1).any() and not seen.diagonal()[1:].any() and seen.tril(-1).any():
            return event.place
    return None


def window(probe: Probe) -> Iterator[Finding]:
    """A window is as wide as it says."""
    size = probe.claim.window
    if size is None or not probe.claim.causal or not probe.per_token or not 1 < size <= 32:
        return
    length = size + 4
    try:
        trace, _ = probe.trace(probe.inputs(length=length))
    except Exception:
        return
    widths = []
    for event in find_attention(trace):
        seen = event.seen
        if seen is not None and seen.shape == (length, length) and not seen.triu(1).any():
            widths.append((int(seen[-1].sum()), event))
    local = [(wide, event) for wide, event in widths if wide < length]
    if local and all(wide in (size - 1, size + 1) for wide, _ in local):
        wide, event = local[0]
        yield finding(
            "window-off-by-one",
            f"the window is {size}, but a query sees {wide} keys, itself included",
            event.place,
            shows=f"{length} tokens: the last query sees {wide} of them",
            effect=abs(wide - size) / size,
            right=f"a query sees {size} keys, itself included",
        )
