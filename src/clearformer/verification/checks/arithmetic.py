"""Arithmetic: scale, softmax, heads, projections, residuals and norms.

Axes: B batch, H heads, Q queries, K keys, D head width, E model width, T tokens.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.verification.attention import Attention, softmax_axis, states_no_scale
from clearformer.verification.entries import finding
from clearformer.verification.findings import Finding, Place, Severity
from clearformer.verification.probe import SOURCE, Probe
from clearformer.verification.trace import Op, Trace


def scale(probe: Probe) -> Iterator[Finding]:
    """Scores are divided by the square root of the head width."""
    for event in probe.attention:
        if event.factor is None or event.normed or not event.head_width or event.head_width < 2:
            continue
        found = _wrong_scale(probe, event)
        if found is not None:
            yield found
            return


def _wrong_scale(probe: Probe, event: Attention) -> Finding | None:
    width, factor = event.head_width or 1, event.factor or 1.0
    right = width**-0.5
    if math.isclose(factor, right, rel_tol=1e-3) or _configured(probe, factor):
        return None
    model_width = next(
        (
            each
            for each in _model_widths(probe, event)
            if each != width and math.isclose(factor, each**-0.5, rel_tol=1e-3)
        ),
        None,
    )
    name, sentence, severity = "", "", None
    if model_width is not None:
        name = "scale-by-model-width"
        sentence = (
            f"scores are divided by sqrt({model_width}) = {model_width**0.5:.3g}; a head "
            f"is {width} wide, so sqrt({width}) = {width**0.5:.3g}"
        )
    elif math.isclose(factor, 1.0, rel_tol=1e-6) and event.followed:
        name = "scale-missing"
        sentence = f"scores are not scaled; a head is {width} wide, so divide by {width**0.5:.3g}"
        if _stated(probe, event):
            severity = Severity.INFO
            sentence += " (its code states this explicitly)"
    elif math.isclose(factor, right * right, rel_tol=1e-3):
        name = "scale-applied-twice"
        sentence = f"scores are divided by {1 / factor:.3g} = sqrt({width}) twice"
        if _is_mup(probe):
            severity = Severity.INFO
            sentence += " (as muP asks, which its code names)"
    elif math.isclose(factor, 1 / right, rel_tol=1e-3):
        name = "scale-inverted"
        sentence = f"scores are multiplied by sqrt({width}) = {factor:.3g} instead of divided"
    if not name:
        return None
    return finding(
        name,
        f"{sentence}. {_entropies(event, factor, right)}",
        event.place,
        shows=_first_input(probe),
        effect=abs(math.log(factor / right)),
        right=f"softmax(q k^T / sqrt({width}))",
        severity=severity,
    )


def _configured(probe: Probe, factor: float) -> bool:
    """Whether the config sets this scale explicitly."""
    for name, value in _numbers(probe.config):
        if value > 0:
            named = any(word in name for word in ("scal", "multiplier", "query_pre"))
            values = (value, 1 / value, value**-0.5)
            if named and any(math.isclose(each, factor, rel_tol=1e-3) for each in values):
                return True
    return False


def _numbers(config: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a config, those of its parts too."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value


def _stated(probe: Probe, event: Attention) -> bool:
    try:
        owner = type(probe.model.get_submodule(event.place.module))
        source = inspect.getsource(owner)
        file = inspect.getsource(inspect.getmodule(owner) or owner)
    except (AttributeError, TypeError, OSError):
        return False
    return states_no_scale(source, file if hasattr(probe.model, "config") else "")


def _is_mup(probe: Probe) -> bool:
    """Whether the code names the maximal update parametrization, which divides by the width."""
    named = re.compile(r"\bmup\b|mu-?parametri[sz]ation|maximal update", re.I)
    for kind in {type(part) for part in probe.model.modules()}:
        try:
            if named.search(inspect.getsource(kind)):
                return True
        except (TypeError, OSError):
            continue
    return False


def _model_widths(probe: Probe, event: Attention) -> Iterator[int]:
    """Widths of all heads together, of the stream, and of what queries are projected from."""
    if event.raw is not None and event.head_width is not None:
        shape, batch = event.raw.shape, probe.base.batch
        heads = shape[1] if len(shape) == 4 else shape[0] // batch if len(shape) == 3 else 1
        if heads > 1:
            yield heads * event.head_width
    if event.projected_from is not None:
        yield event.projected_from
    if probe.width is not None:
        yield probe.width


def _entropies(event: Attention, factor: float, right: float) -> str:
    """How flat the weights are, and how flat they should be."""
    if event.raw is None or event.raw.dim() < 3:
        return ""
    scores = event.raw.double()
    seen = event.seen
    if seen is not None and seen.shape == scores.shape[-2:]:
        scores = scores.masked_fill(~seen, -math.inf)
    own = factor if not event.fused else event.factors[0]
    both = [(scores * each).softmax(-1).nan_to_num() for each in (own, own * right / factor)]
    is_, meant = (float(-(w * w.clamp_min(1e-30).log()).sum(-1).mean()) for w in both)
    return f"The entropy of the weights is {is_:.2f} instead of {meant:.2f} nats here."


def _first_input(probe: Probe) -> str:
    if probe.takes_tokens:
        return f"tokens {probe.base.stream[:1].tolist()}"
    return f"random vectors (1, {probe.length}, {probe.width})"


def softmax_direction(probe: Probe) -> Iterator[Finding]:
    """Weights sum to one over the keys, also after they were masked."""
    for event in probe.attention:
        weights = event.weights
        if event.fused or weights is None or event.probabilities is None or weights.dim() < 2:
            continue
        total = weights.sum(dim=-1)
        total = total[total != 0]  # a query that sees nothing may give zeros
        if bool(((total - 1).abs() < 1e-4).all()):
            continue
        masked = _masked_after(event)
        axis = softmax_axis(event)
        if masked is not None and axis == -1:
            yield finding(
                "softmax-before-mask",
                f"weights are masked after the softmax: a query's weights sum to "
                f"{float(total.min()):.2f}, and hidden scores still count in the normaliser",
                masked.place,
                shows=_first_input(probe),
                effect=float(1 - total.min()),
                right="mask the scores with -inf, then softmax",
            )
            return
        if axis is not None and axis != -1 and not event.after_changes_sum:
            yield finding(
                "softmax-axis",
                f"the softmax runs over axis {axis} of {tuple(event.probabilities.shape)}; the "
                f"weights of a query sum to {float(total.min()):.2f} to {float(total.max()):.2f}",
                event.place,
                shows=_first_input(probe),
                effect=float((total - 1).abs().max()),
                right="softmax over the keys: the axis that is summed with the values",
            )
            return


def _masked_after(event: Attention) -> Op | None:
    """The operation between softmax and values that set weights to zero."""
    for op in event.after:
        masks = op.name in ("masked_fill", "where", "setitem", "tril", "triu", "mul")
        if masks and _sets_to_zero(op, event):
            return op
    return None


def _sets_to_zero(op: Op, event: Attention) -> bool:
    """Whether an operation makes weights zero that the softmax did not."""
    before, after = event.probabilities, op.value
    if before is None or after is None:
        return False
    return int((after == 0).sum()) * before.numel() > int((before == 0).sum()) * after.numel()


def heads_by_view(probe: Probe) -> Iterator[Finding]:
    """Splitting and merging heads keeps each position's numbers together."""
    found = list(views_in(probe.base_trace, probe.length, probe.base.batch, _first_input(probe)))
    if not found and probe.length < 13:
        # Another length, where this one is by chance the size of another axis.
        try:
            trace, _ = probe.trace(probe.inputs(length=13))
        except Exception:
            return
        found = list(views_in(trace, 13, probe.base.batch, "13 tokens"))
    yield from found


def views_in(trace: Trace, length: int, batch: int, shows: str) -> Iterator[Finding]:
    """Views that move numbers between positions; a class token makes the sequence one longer."""
    for size in (length, length + 1):
        found = list(_views_of(trace, size, batch, shows))
        if found:
            yield from found
            return


def _views_of(trace: Trace, length: int, batch: int, shows: str) -> Iterator[Finding]:
    for op in trace.named("view", "reshape", "unflatten", "flatten"):
        source = op.tensors[0] if op.tensors else None
        made = None if source is None else trace.producer(source, op.index)
        before = source if made is None or made.value is None else made.value
        if before is None or op.value is None or not _splits_heads(before, op.value, batch):
            continue
        axes = [[a for a, n in enumerate(each.shape) if n == length] for each in (before, op.value)]
        if len(axes[0]) != 1 or len(axes[1]) != 1:
            continue
        if not _keeps_positions(before.detach(), op.value, axes[0][0], axes[1][0], length):
            yield finding(
                "heads-mixed-by-view",
                f"{op.name} from {tuple(before.shape)} to {tuple(op.value.shape)} mixes positions "
                f"with heads",
                op.place,
                shows=shows,
                right="view(B, T, H, D).transpose(1, 2), back: transpose(1, 2).reshape(B, T, E)",
            )
            return


def _splits_heads(before: Tensor, after: Tensor, batch: int) -> bool:
    """Whether a view cuts the width into heads or joins them: other numbers of axes, or of rows."""
    if not before.is_floating_point() or min(before.dim(), after.dim()) < 3:
        return False
    if before.dim() != after.dim():
        return max(before.dim(), after.dim()) <= 5
    folds = before.shape[0] != after.shape[0] and before.shape[-1] != after.shape[-1]
    return before.dim() == 3 and folds and batch in (*before.shape[:2], *after.shape[:2])


def _keeps_positions(before: Tensor, after: Tensor, axis: int, other: int, length: int) -> bool:
    for position in range(length):
        own = before.select(axis, position).nan_to_num().flatten().sort().values
        new = after.select(other, position).nan_to_num().flatten().sort().values
        if own.shape != new.shape or not own.equal(new):
            return False
    return True


def slices_of_time(probe: Probe) -> Iterator[Finding]:
    """Heads are not cut from the time axis."""
    yield from time_slices_in(probe.base_trace, probe.length, probe.base.batch, _first_input(probe))


def time_slices_in(trace: Trace, length: int, batch: int, shows: str) -> Iterator[Finding]:
    """Products of queries and keys of which only a slice of the time axis was taken."""
    for op in trace.named("matmul", "bmm", "einsum"):
        cuts = [_time_cut(trace, each, op.index, length, batch) for each in op.tensors[:2]]
        if len(cuts) == 2 and cuts[0] is not None and cuts[1] is not None:
            yield finding(
                "heads-slice-time",
                f"queries and keys are slices of the time axis ({cuts[0].place.line}): a head sees "
                f"a part of the sequence, not a part of the width",
                cuts[0].place,
                shows=shows,
                right="q[:, :, start:start + D], or view(B, T, H, D).transpose(1, 2)",
            )
            return


def _time_cut(trace: Trace, tensor: Tensor, before: int, length: int, batch: int) -> Op | None:
    for _ in range(6):
        op = trace.producer(tensor, before)
        if op is None or not op.tensors:
            return None
        if op.name in ("getitem", "narrow"):
            source = op.tensors[0]
            key = op.argument(1, "index")
            sliced = isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], slice)
            bounds = sliced and (key[1].start is not None or key[1].stop is not None)
            if bounds and source.dim() == 3 and source.shape[:2] == (batch, length):
                return op
        if op.name not in ("transpose", "permute", "contiguous", "getitem", "div", "mul", "clone"):
            return None
        before, tensor = op.index, op.tensors[0]
    return None


def swapped_cross_attention(probe: Probe) -> Iterator[Finding]:
    """In cross-attention queries come from the target, keys from the source."""
    if probe.form.source is None:
        return
    shapes = [tuple(e.raw.shape[-2:]) for e in probe.attention if e.raw is not None]
    wrong, right = (SOURCE, probe.length), (probe.length, SOURCE)
    if wrong in shapes and right not in shapes:
        event = probe.attention[shapes.index(wrong)]
        yield finding(
            "qk-swapped-cross",
            f"scores of cross-attention have shape {wrong}: the {SOURCE} source positions ask, and "
            f"the {probe.length} target positions answer",
            event.place,
            shows=f"a source of {SOURCE} and a target of {probe.length}",
            right="queries of the target, keys and values of the source",
        )


def shared_projections(probe: Probe) -> Iterator[Finding]:
    """Queries, keys and values are three projections."""
    dead = dict(unused_parameters(probe))
    for event in probe.attention:
        q, k, v = event.q, event.k, event.v
        if k is None or v is None or q is None:
            continue
        module = event.place.module
        inside = [name for name in dead if name.startswith(f"{module}." if module else "")]
        unused = [
            name
            for name in inside
            if re.search(
                r"(^|[._])(to|w_?)?[kvq](al|ey|uer|_|\b|$)", name.removeprefix(module).lower()
            )
        ]
        unused += _unused_rows(probe, module) if not unused else []
        projected = _has_linear(probe, module)
        if _equal(k, v) and not _equal(q, k) and projected:
            yield finding(
                "value-projection-shared",
                "values are equal to the keys"
                + (f", and {unused[0]} gets no gradient" if unused else ""),
                event.place,
                shows=_first_input(probe),
                right="v = W_v x, with its own matrix",
                severity=None if unused else Severity.INFO,
            )
            return
        if _equal(q, k) and unused and projected and not _equal(k, v):
            yield finding(
                "key-projection-shared",
                f"keys are equal to the queries, and {unused[0]} gets no gradient",
                event.place,
                shows=_first_input(probe),
                right="k = W_k x, with its own matrix",
            )
            return
        if _equal(q, v) and unused and projected and not _equal(q, k):
            yield finding(
                "value-projection-shared",
                f"values are equal to the queries, and {unused[0]} gets no gradient",
                event.place,
                right="v = W_v x, with its own matrix",
            )
            return


def _unused_rows(probe: Probe, module: str) -> list[str]:
    """Joint projections of which a half or a third of the rows gets no gradient."""
    found = []
    with gradients(probe) as model:
        for name, parameter in model.named_parameters():
            grad = parameter.grad
            if grad is None or grad.dim() != 2 or not name.startswith(module):
                continue
            for parts in (2, 3):
                if len(grad) % parts == 0:
                    used = grad.view(parts, -1).abs().amax(dim=1) > 0
                    if bool(used.any()) and not bool(used.all()):
                        found.append(f"a part of {name}")
    return found


def _has_linear(probe: Probe, module: str) -> bool:
    try:
        return any(True for _ in probe.model.get_submodule(module).parameters())
    except AttributeError:
        return False


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape == b.shape:
        return bool(a.equal(b))
    return (
        a.dim() == b.dim()
        and a.transpose(-1, -2).shape == b.shape
        and bool(a.transpose(-1, -2).equal(b))
    )


def unused_parameters(probe: Probe) -> Iterator[tuple[str, Tensor]]:
    """Parameters that get no gradient from any output."""
    with gradients(probe) as model:
        dead = [each for each in model.named_parameters() if each[1].grad is None]
    yield from (each for each in dead if each[1].requires_grad)


@contextmanager
def gradients(probe: Probe) -> Iterator[nn.Module]:
    """The model with the gradients of one backward pass from all outputs."""
    model = probe.model
    model.zero_grad(set_to_none=True)
    raw = probe.raw(probe.base, grad=True)
    total = sum((each.double() * _fixed(each)).sum() for each in float_tensors(raw))
    if isinstance(total, Tensor) and total.requires_grad:
        total.backward()
    try:
        yield model
    finally:
        model.zero_grad(set_to_none=True)


def _fixed(tensor: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64)


def float_tensors(raw: Any) -> Iterator[Tensor]:
    """Every tensor with a gradient in what a model returned."""
    if isinstance(raw, Tensor):
        if raw.is_floating_point() and raw.requires_grad:
            yield raw
    elif isinstance(raw, dict):
        for each in raw.values():
            yield from float_tensors(each)
    elif isinstance(raw, list | tuple):
        for each in raw:
            yield from float_tensors(each)


def output_projection(probe: Probe) -> Iterator[Finding]:
    """Merged heads are projected by W_o (unusual without, but possible)."""
    for event in probe.attention:
        if event.output is None or event.raw is None or event.raw.dim() < 3:
            continue
        owner = event.place.module
        later = probe.base_trace.ops[event.output.index + 1 :]
        following = next(
            (
                op
                for op in later
                if op.name
                in ("linear", "addmm", "matmul", "add", "einsum", "layer_norm", "rms_norm")
            ),
            None,
        )
        if following is None and len(probe.attention) == 1:
            yield finding(
                "output-projection-missing",
                "merged heads are returned without a projection W_o",
                Place(owner, event.place.line),
                right="an output projection, or a feed-forward layer that follows at once",
            )
        return


# --- residuals and norms --------------------------------------------------------------------


def residuals(probe: Probe) -> Iterator[Finding]:
    """With the output of a sublayer set to zero, the input still gets through."""
    if not probe.per_token or not probe.attention:
        return
    sublayers = list({each[0]: each for each in _sublayer_outputs(probe)}.values())
    norms = probe.base_trace.named("layer_norm", "rms_norm", "rsqrt", "var")
    if len(sublayers) < 2 or not (norms or probe.takes_tokens):
        return  # an attention layer alone has no residual
    for name, weights, place in [*sublayers, *_blocks(sublayers)]:
        with zeroed(probe.model, weights):
            dependent = _depends_on_itself(probe, probe.model)
        if not dependent:
            yield finding(
                "residual-missing",
                f"with {name} set to zero the output no longer depends on the input: this sublayer "
                f"replaces the residual stream",
                place,
                shows=_first_input(probe),
                right="x = x + sublayer(norm(x))",
            )
            return


Sublayer = tuple[str, list[str], Place]  # name, parameters of its last projection, where


def _blocks(sublayers: list[Sublayer]) -> Iterator[Sublayer]:
    """The sublayers of each block as one: parallel ones keep each other's input alive."""
    blocks: dict[str, list[Sublayer]] = {}
    for each in sublayers:
        blocks.setdefault(common_block(each[0]), []).append(each)
    for block, parts in blocks.items():
        if block and len(parts) > 1:
            weights = [name for _, own, _ in parts for name in own]
            yield f"{block} ({' and '.join(name for name, _, _ in parts)})", weights, parts[0][2]


@contextmanager
def zeroed(model: nn.Module, names: list[str]) -> Iterator[None]:
    """Parameters set to zero inside, and back after."""
    parameters = dict(model.named_parameters())
    kept = {name: parameters[name].detach().clone() for name in names}
    with torch.no_grad():
        for name in names:
            parameters[name].zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in kept.items():
                parameters[name].copy_(value)


def _depends_on_itself(probe: Probe, model: nn.Module) -> bool:
    inputs = probe.inputs(batch=2)
    before = probe.run(inputs, model=model)
    after = probe.run(probe.change(inputs, 0, 0), model=model)
    return probe.differs(before, after) > 0


def _sublayer_outputs(probe: Probe) -> Iterator[Sublayer]:
    """The last projection of each attention and each feed-forward layer, with its parameters."""
    names = {id(each): name for name, each in probe.model.named_parameters()}
    linear = [
        (op, [names[id(each)] for each in op.tensors if id(each) in names])
        for op in probe.base_trace.named("linear", "addmm", "matmul", "einsum")
    ]
    linear = [(op, used) for op, used in linear if used]
    outputs = [event.output.index for event in probe.attention if event.output is not None]
    starts = [event.softmax.index for event in probe.attention]
    for number, end in enumerate(outputs):
        following = [each for each in linear if each[0].index > end]
        limit = next((each for each in starts if each > end), math.inf)
        block = [each for each in following if each[0].index < limit]
        if not block:
            return
        first, used = block[0]
        yield used[0].rsplit(".", 1)[0], _with_bias(used, names), first.place
        # The feed-forward layer: the last projection that stands in the same block.
        owner = common_block(first.place.module)
        inside = [
            each for each in block[1:] if owner and common_block(each[0].place.module) == owner
        ]
        if len(inside) >= 2 and number < len(outputs):
            last, used = inside[-1]
            yield used[0].rsplit(".", 1)[0], _with_bias(used, names), last.place


def _with_bias(used: list[str], names: dict[int, str]) -> list[str]:
    bias = used[0].rsplit(".", 1)[0] + ".bias"
    return [*used, bias] if bias in names.values() and bias not in used else used


def common_block(path: str) -> str:
    """The path of a module up to its last number: `blocks.3.attn.out` is in `blocks.3`."""
    parts = path.split(".")
    numbers = [at for at, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else ""


def norm_placement(probe: Probe) -> Iterator[Finding]:
    """A block that claims to be pre-norm is pre-norm."""
    flags = (
        "norm_first",
        "pre_norm",
        "prenorm",
        "normalize_before",
        "do_layer_norm_before",
        "pre_ln",
        "is_pre_norm",
    )
    for name, part in probe.model.named_modules():
        claimed = next(
            (getattr(part, each) for each in flags if isinstance(getattr(part, each, None), bool)),
            None,
        )
        stacked = any(
            isinstance(each, nn.ModuleList | nn.Sequential)
            and any(
                event.place.module.startswith(f"{name}.{own}." if name else f"{own}.")
                for event in probe.attention
            )
            for own, each in part.named_children()
        )
        if claimed is None or stacked or not list(part.children()):
            continue
        last = _last_of_block(probe, name)
        if last is None:
            continue
        is_post = (
            last.name in ("layer_norm", "rms_norm")
            or "norm" in last.place.module.rsplit(".", 1)[-1]
        )
        if claimed == is_post:
            said, found = ("pre", "post") if claimed else ("post", "pre")
            yield finding(
                "norm-misplaced",
                f"{name or probe.name} says {said}-norm, but its last operation is {last.name}: "
                f"it is {found}-norm",
                last.place,
                right="pre-norm: x + f(norm(x)); post-norm: norm(x + f(x))",
            )
            return


def _last_of_block(probe: Probe, name: str) -> Op | None:
    inside = [
        op
        for op in probe.base_trace.ops
        if name and (op.place.module == name or op.place.module.startswith(f"{name}."))
    ]
    attends = any(event.place.module.startswith(name) for event in probe.attention)
    own = [op for op in inside if op.name not in ("dropout", "to", "view", "reshape", "contiguous")]
    return own[-1] if own and attends else None


def norm_over_time(probe: Probe) -> Iterator[Finding]:
    """A norm takes its statistics over the width alone."""
    for op in probe.base_trace.named("layer_norm", "rms_norm"):
        shape = op.argument(1, "normalized_shape")
        if op.value is not None and isinstance(shape, list | tuple | torch.Size):
            over = list(shape)
            if probe.length in over and (len(over) > 1 or probe.length != probe.width):
                yield _over_time(op, f"normalized_shape {tuple(over)} contains the length")
                return
    for op in probe.base_trace.named("instance_norm", "group_norm"):
        source = op.tensors[0]
        if probe.length in source.shape[2:] or (
            op.name == "group_norm" and probe.length == source.shape[1]
        ):
            yield _over_time(op, f"{op.name} of {tuple(source.shape)}")
            return
    for op in probe.base_trace.named("var", "std", "var_mean", "std_mean"):
        source, dim = op.tensors[0], op.argument(1, "dim")
        dims = [dim] if isinstance(dim, int) else list(dim or ())
        sizes = [source.shape[each] for each in dims]
        if source.dim() == 3 and probe.length in sizes and source.shape[1] == probe.length:
            yield _over_time(op, f"{op.name} over axis {dims} of {tuple(source.shape)}")
            return


def _over_time(op: Op, why: str) -> Finding:
    return finding(
        "norm-over-time",
        f"a norm takes its statistics over positions: {why}",
        op.place,
        right="LayerNorm(E): each position by itself",
    )


def gelu_variant(probe: Probe) -> Iterator[Finding]:
    """The activation is the GELU that the config names."""
    named = next(
        (
            v
            for k, v in probe.config.items()
            if k in ("hidden_act", "activation_function", "hidden_activation")
            and isinstance(v, str)
        ),
        None,
    )
    for op in probe.base_trace.named("gelu"):
        tanh = op.argument(1, "approximate", "none") == "tanh"
        claims_tanh = named in ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
        if named is not None and (named == "gelu" or claims_tanh) and tanh != claims_tanh:
            yield finding(
                "gelu-variant",
                f"the config says {named}, but the model computes the "
                f"{'tanh approximation' if tanh else 'exact form'}",
                op.place,
            )
            return


def tied_weights(probe: Probe) -> Iterator[Finding]:
    """What is tied is one tensor, not two equal ones."""
    matrices = [
        (n, p) for n, p in probe.plain.named_parameters() if p.dim() == 2 and p.numel() > 16
    ]
    tables = {
        f"{n}.weight" for n, part in probe.plain.named_modules() if isinstance(part, nn.Embedding)
    }
    for name, table in matrices:
        for other, matrix in matrices:
            two = name in tables and other not in tables and table is not matrix
            if two and table.shape == matrix.shape and table.equal(matrix):
                yield finding(
                    "tied-weights-broken",
                    f"{name} and {other} are equal, but two tensors: training moves them apart",
                    Place(other.rsplit(".", 1)[0]),
                    right="head.weight = embedding.weight: the same Parameter",
                )
                return
    if hasattr(probe.model, "tie_weights"):
        return  # it ties by a method of its own, when weights are loaded
    says = probe.config.get("tie_word_embeddings") or probe.config.get("tie_weights")
    head = _output_head(probe)
    if says and head is not None and probe.is_language_model and probe.form.source is None:
        name, projection = head
        sizes = [p for n, p in probe.plain.named_parameters() if n in tables]
        same = any(p.shape == projection.shape for p in sizes)
        if same and not any(p.data_ptr() == projection.data_ptr() for p in sizes):
            yield finding(
                "tied-weights-broken",
                f"the config says that embeddings are tied, but {name} is a tensor of its own",
                Place(name.rsplit(".", 1)[0]),
                right="head.weight = embedding.weight: the same Parameter",
            )


def _output_head(probe: Probe) -> tuple[str, Tensor] | None:
    last = [op for op in probe.base_trace.named("linear") if op.out.shape[-1] == probe.vocabulary]
    if not last:
        return None
    names = {id(p): n for n, p in probe.model.named_parameters()}
    weight = last[-1].tensors[1]
    name = names.get(id(weight))
    return None if name is None else (name, dict(probe.plain.named_parameters())[name])
