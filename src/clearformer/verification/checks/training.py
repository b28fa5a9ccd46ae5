"""Training: the loss, its first value, dropout, gradients and precision.

Axes: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.verification import reproduction
from clearformer.verification.calls import Inputs, loss_output
from clearformer.verification.checks.arithmetic import float_tensors, unused_parameters
from clearformer.verification.entries import finding
from clearformer.verification.findings import Finding, Place, Severity, listed
from clearformer.verification.probe import Probe, training_mode
from clearformer.verification.trace import Recorder, Trace

NEAR = 1e-4


def loss_parameter(probe: Probe) -> str | None:
    return next((each.name for each in probe.parameter("labels")), None)


def loss_of(probe: Probe, inputs: Inputs, targets: Tensor, **options: Any) -> float | None:
    """The model's own loss, or None."""
    name = loss_parameter(probe)
    if name is None:
        return None
    try:
        found = loss_output(probe.raw(inputs, extra={name: targets}, **options))
    except Exception:
        return None
    return None if found is None or not bool(found.isfinite()) else float(found)


def losses(logits: Tensor, targets: Tensor, ignored: int = -100) -> dict[int, float]:
    """The mean cross-entropy with targets shifted by 0, 1 and 2 positions."""
    found = {}
    for shift in (0, 1, 2):
        rows = logits[:, : logits.shape[1] - shift].flatten(0, 1)
        own = targets[:, shift:].flatten()
        found[shift] = float(F.cross_entropy(rows.double(), own, ignore_index=ignored))
    return found


def loss_shift(probe: Probe) -> Iterator[Finding]:
    """The loss compares each output with the next token, once."""
    name = loss_parameter(probe)
    if not probe.is_language_model:
        return
    if name is None:
        yield from _loss_of_its_own(probe)
        return
    inputs, labels = probe.base, probe.inputs(seed=9).stream
    own = loss_of(probe, inputs, labels)
    if own is None:
        return
    logits = probe.base_output
    if probe.form.source is not None:
        table = losses(logits, labels)
        if abs(table[1] - own) < NEAR:
            yield _shifted(probe, name, 1, "loss-shifted-twice", own, table)
        return
    table = losses(logits, labels)
    shift = next((each for each, value in table.items() if abs(value - own) < NEAR), None)
    if shift == 2:
        yield _shifted(probe, name, 2, "loss-shifted-twice", own, table)
    elif shift == 0 and probe.claim.causal and name == "labels":
        found = _shifted(probe, name, 0, "loss-not-shifted", own, table)
        # Elsewhere callers may shift the labels themselves.
        yield found if _shifts_itself(probe) else replace(found, severity=Severity.INFO)


def _loss_of_its_own(probe: Probe) -> Iterator[Finding]:
    """A loss that is asked for by a flag: the inputs are the targets too."""
    for each in probe.parameter("return_loss"):
        try:
            loss = loss_output(probe.raw(probe.base, extra={each.name: True}))
        except Exception:
            continue
        if loss is None or not probe.claim.causal:
            continue
        table = losses(probe.base_output, probe.base.stream)
        for shift, bug in ((0, "loss-not-shifted"), (2, "loss-shifted-twice")):
            if abs(table[shift] - float(loss)) < NEAR:
                yield _shifted(probe, each.name, shift, bug, float(loss), table)


def _shifts_itself(probe: Probe) -> bool:
    """Whether `labels` are meant to be the input itself, as in Hugging Face's causal models."""
    return hasattr(probe.model, "config") or probe.accepts("input_ids")


def _shifted(
    probe: Probe, name: str, shift: int, bug: str, own: float, table: dict[int, float]
) -> Finding:
    meant = 0 if probe.form.source is not None else 1
    return finding(
        bug,
        f"the loss for {name} is {own:.4f}, the cross-entropy with targets shifted by {shift} "
        f"(shifted by {meant}: {table[meant]:.4f})",
        _loss_place(probe, name),
        shows=f"tokens {probe.base.stream[:1].tolist()} with {name}",
        effect=abs(own - table[meant]),
        right="logits[:, :-1] against tokens[:, 1:], in one place only",
        reproduction=reproduction.loss_is_shifted(probe, name, shift)
        if name == loss_parameter(probe)
        else None,
    )


def _loss_place(probe: Probe, name: str) -> Place:
    trace = _loss_trace(probe, name)
    ops = [] if trace is None else trace.named("cross_entropy", "nll_loss", "log_softmax")
    return ops[-1].place if ops else Place()


def _loss_trace(probe: Probe, name: str) -> Trace | None:
    recorder = Recorder(probe.model)
    try:
        with recorder.recording() as trace:
            flag = any(each.name == name for each in probe.parameter("return_loss"))
            value = True if flag else probe.inputs(seed=9).stream
            probe.raw(probe.base, extra={name: value})
    except Exception:
        return None
    return trace


def loss_over_batch(probe: Probe) -> Iterator[Finding]:
    """The loss is the mean over the tokens that count."""
    name = loss_parameter(probe)
    if name is None or not probe.is_language_model:
        return
    inputs, labels = probe.base, probe.inputs(seed=9).stream.clone()
    full = loss_of(probe, inputs, labels)
    if full is None:
        return
    table = losses(probe.base_output, labels)
    shift = next((each for each, value in table.items() if abs(value - full) < NEAR), None)
    if shift is None:
        return
    ignored = _ignored(probe, name)
    ragged = labels.clone()
    for row, kept in enumerate((2, 4, probe.length)):
        ragged[row, kept:] = ignored
    own = loss_of(probe, inputs, ragged)
    logits = probe.base_output
    rows = logits[:, : logits.shape[1] - shift]
    own_targets = ragged[:, shift:]
    each = F.cross_entropy(
        rows.flatten(0, 1).double(), own_targets.flatten(), ignore_index=ignored, reduction="none"
    )
    each = each.view(own_targets.shape)
    counts = own_targets != ignored
    right = float(each.sum() / counts.sum())
    if own is None or abs(own - right) < NEAR:
        yield from _padding_counted(probe, name, ignored)
        return
    by_row = float((each.sum(1) / counts.sum(1).clamp(min=1)).mean())
    over_all = float(each.sum() / counts.numel())
    if abs(own - by_row) < NEAR:
        yield finding(
            "mean-of-means",
            f"the loss is {own:.4f}, the mean of the means of rows; over tokens: {right:.4f}",
            _loss_place(probe, name),
            shows="rows with 2, 4 and all tokens that count",
            effect=abs(own - right),
            right="sum of the losses / number of tokens, once over the whole batch",
        )
    else:
        how = (
            "divided by all positions"
            if abs(own - over_all) < NEAR
            else "not the mean over valid ones"
        )
        yield finding(
            "loss-counts-padding",
            f"the loss is {own:.4f}, {how}; the mean over tokens that count is {right:.4f}",
            _loss_place(probe, name),
            shows="rows with 2, 4 and all tokens that count",
            effect=abs(own - right),
            right="sum over valid targets / their number",
        )


def _ignored(probe: Probe, name: str) -> int:
    """The target that the model's loss ignores."""
    trace = _loss_trace(probe, name)
    for op in [] if trace is None else trace.named("cross_entropy", "nll_loss"):
        found = op.argument(4, "ignore_index", -100)
        if isinstance(found, int):
            return found
    return -100


def _padding_counted(probe: Probe, name: str, ignored: int) -> Iterator[Finding]:
    """A model that knows its padding token does not learn to predict it."""
    if ignored != -100:
        return
    names = ("pad_token_id", "pad_id", "pad_idx", "padding_idx", "pad_token")
    held = [getattr(part, each, None) for part in probe.model.modules() for each in names]
    pads = {each for each in held if type(each) is int and each >= 0}
    if len(pads) != 1 or probe.config or not probe.claim.causal or _marks_ignored(probe):
        return  # targets that do not count are -100, by convention or in its code
    (pad,) = pads
    labels = probe.inputs(seed=9).stream.clone()
    labels[0, 3:] = pad
    own = loss_of(probe, probe.base, labels)
    counted = losses(probe.base_output, labels)
    if own is not None and any(abs(own - value) < NEAR for value in counted.values()):
        yield finding(
            "loss-counts-padding",
            f"the model knows token {pad} as padding, but targets of {pad} count in its loss",
            _loss_place(probe, name),
            shows=f"targets {labels[:1].tolist()}",
            right=f"cross_entropy(..., ignore_index={pad})",
        )


def _marks_ignored(probe: Probe) -> bool:
    """Whether the code of the model names -100, the target that torch ignores."""
    try:
        return "-100" in inspect.getsource(type(probe.model))
    except (TypeError, OSError):
        return False


def first_loss(probe: Probe) -> Iterator[Finding]:
    """An untrained model's loss is about ln V."""
    if not probe.is_language_model or probe.vocabulary is None or probe.vocabulary < 4:
        return
    logits = probe.run(probe.base, model=probe.plain).double()
    if not bool(logits.isfinite().all()):
        return
    spread = float(logits.std(dim=-1).mean())
    uniform = math.log(probe.vocabulary)
    labels = probe.inputs(seed=9).stream
    own = losses(logits, labels)[1 if probe.length > 1 else 0]
    if own > uniform + 1.5 and spread > 2.5:
        yield finding(
            "initial-loss",
            f"the loss on random tokens is {own:.2f}; ln {probe.vocabulary} is {uniform:.2f} "
            f"(standard deviation of the logits: {spread:.1f}): the new model is overconfident",
            shows=f"tokens {probe.base.stream[:1].tolist()}",
            effect=own - uniform,
            right="initial logits near 0: scale the embedding or the head (0.02)",
            severity=Severity.WARNING if own > uniform + 3 and not probe.config else Severity.INFO,
        )


def dead_parameters(probe: Probe) -> Iterator[Finding]:
    """Every parameter gets a gradient."""
    dead = [name for name, _ in unused_parameters(probe)]
    if not dead:
        return
    optional = [
        each
        for each in probe.parameters
        if not each.required and each.role == "other" and each.default is None
    ]
    yield finding(
        "dead-parameters",
        f"{listed(dead)}: no gradient reaches {'it' if len(dead) == 1 else 'them'}",
        Place(dead[0].rpartition(".")[0]),
        shows="one backward pass",
        effect=float(len(dead)),
        right="use it in the forward pass, or remove it",
        reproduction=reproduction.gradients(probe),
        severity=Severity.INFO if optional or probe.published else None,
    )


# --- dropout and randomness ----------------------------------------------------------------


def _rate(op: Any) -> float:
    if op.name == "scaled_dot_product_attention":
        found = op.argument(4, "dropout_p", 0.0)
    else:
        found = op.argument(1, "p", 0.5)
    return float(found) if isinstance(found, int | float) else 0.0


def _active(op: Any) -> bool:
    if op.name == "scaled_dot_product_attention":
        return _rate(op) > 0
    return op.name == "dropout" and _rate(op) > 0 and bool(op.argument(2, "training", True))


def randomness_in_eval(probe: Probe) -> Iterator[Finding]:
    """In eval mode nothing is random."""
    one, two = probe.run(probe.base, seed=1), probe.run(probe.base, seed=2)
    effect = probe.differs(one, two)
    active = [op for op in probe.base_trace.ops if _active(op)]
    if active:
        yield finding(
            "dropout-in-eval",
            f"dropout of {_rate(active[0]):g} is active in eval mode",
            active[0].place,
            shows="the same input twice in eval mode",
            effect=effect,
            right="F.dropout(x, p, training=self.training); dropout_p=p if self.training else 0",
            reproduction=reproduction.twice(probe) if effect else None,
        )
    elif effect:
        drawn = probe.base_trace.named(
            "rand",
            "randn",
            "bernoulli",
            "rand_like",
            "randn_like",
            "randint",
            "randperm",
            "normal",
            "uniform",
            "multinomial",
        )
        yield finding(
            "eval-nondeterministic",
            "the same input gives another output in eval mode",
            drawn[0].place if drawn else Place(),
            shows="the same input twice in eval mode",
            effect=effect,
            right="randomness in training only",
            reproduction=reproduction.twice(probe),
        )


def dropout_places(probe: Probe) -> Iterator[Finding]:
    """Dropout is applied in training, and to weights instead of scores."""
    trace, _ = probe.trace(probe.base, train=True)
    from clearformer.verification.attention import find_attention

    for event in find_attention(trace):
        early = [op for op in event.before if _active(op)]
        if early:
            yield finding(
                "dropout-on-scores",
                "dropout is applied to the scores before the softmax: a dropped score is 0, not "
                "-inf, and hidden or unlikely keys gain weight",
                early[0].place,
                shows="train mode",
                right="softmax, then dropout on the weights",
            )
            return
    applied = [op for op in trace.ops if _active(op)]
    ran = {op.place.module for op in trace.ops}
    claimed = [
        name
        for name in _claimed_dropout(probe.model)
        if any(module.startswith(name.rpartition(".")[0]) for module in ran) and not probe.published
    ]
    if claimed and not applied:
        one, two = (probe.run(probe.base, train=True, seed=seed) for seed in (1, 2))
        if not probe.differs(one, two):
            yield _not_applied(probe, claimed, "train mode is not random")
        return
    idle = list(_idle_dropout(probe, trace))
    if idle:
        yield _not_applied(probe, idle, "it is never called")


def _claimed_dropout(model: nn.Module) -> Iterator[str]:
    for name, part in model.named_modules():
        if isinstance(part, nn.Dropout) and part.p > 0:
            yield name
        else:
            for own, value in vars(part).items():
                if "drop" in own and type(value) is float and 0 < value < 1:
                    yield f"{name}.{own}" if name else own


def _idle_dropout(probe: Probe, trace: Trace) -> Iterator[str]:
    """Dropout modules that no operation ran in, where nothing else applies their rate."""
    if probe.published:
        return  # libraries pass the rate of an idle module to a fused kernel
    rates = {op.place.module: _rate(op) for op in trace.ops if _active(op)}
    for name, part in probe.model.named_modules():
        if isinstance(part, nn.Dropout) and part.p > 0 and name not in rates:
            parent = name.rpartition(".")[0]
            beside = [rate for module, rate in rates.items() if module == parent]
            if part.p not in beside and not isinstance(
                _parent(probe.model, parent), nn.MultiheadAttention
            ):
                yield name


def _parent(model: nn.Module, path: str) -> nn.Module:
    return model.get_submodule(path) if path else model


def _not_applied(probe: Probe, names: list[str], why: str) -> Finding:
    return finding(
        "dropout-not-applied",
        f"{listed(names)}: dropout is set, but {why}",
        Place(names[0]),
        shows="train mode, two random seeds",
        right="apply it, or set it to 0",
    )


# --- gradients and precision -----------------------------------------------------------------


def memory_gradient(probe: Probe) -> Iterator[Finding]:
    """A memory that is returned for the next segment carries no graph."""
    if not probe.parameter("cache") and not hasattr(probe.model, "mem_len"):
        return
    raw = probe.raw(probe.base, train=True, grad=True)
    for name in ("mems", "memory", "memories", "new_mems"):
        value = raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)
        if value is not None and any(
            True for _ in float_tensors(list(value) if not isinstance(value, Tensor) else value)
        ):
            yield _keeps_graph(name)
            return
    named = [each.name for each in probe.parameter("cache") if "mem" in each.name]
    if named and isinstance(raw, tuple):
        for value in raw[1:]:
            held = list(float_tensors(value))
            if held and all(each.dim() >= 2 for each in held):
                yield _keeps_graph(named[0])
                return


def _keeps_graph(name: str) -> Finding:
    return finding(
        "gradient-through-memory",
        f"{name} is returned with its graph: the next backward pass enters this segment, or fails",
        shows="a forward pass in train mode",
        right="memory.detach()",
    )


def half_precision(probe: Probe) -> Iterator[Finding]:
    """What is finite in float32 is finite in float16."""
    inputs = probe.base
    full = probe.run(inputs, model=probe.plain)
    if not bool(full.isfinite().all()):
        return
    import copy

    half = copy.deepcopy(probe.plain).half()
    stream = inputs.stream.half() if inputs.stream.is_floating_point() else inputs.stream
    source = inputs.source
    source = source.half() if source is not None and source.is_floating_point() else source
    before = probe.dtype
    probe.dtype = torch.float16
    try:
        got = probe.run(Inputs(stream, source), model=half)
    except Exception as problem:
        if "overflow" in str(problem):
            yield finding(
                "half-precision-overflow",
                f"in float16 it raises: {' '.join(str(problem).split())[:120]}",
                right="torch.finfo(scores.dtype).min, or -inf",
                severity=Severity.INFO,
            )
        return
    finally:
        probe.dtype = before
    if not bool(got.isfinite().all()):
        yield finding(
            "half-precision-overflow",
            "outputs are NaN or infinite in float16, and finite in float32",
            shows="the same input in float16",
            right="scale before the product, softmax in float32",
        )


def checkpointing(probe: Probe) -> Iterator[Finding]:
    """Recomputing activations does not change gradients."""
    flags = (
        "gradient_checkpointing",
        "use_checkpoint",
        "checkpointing",
        "use_checkpointing",
        "grad_checkpointing",
        "activation_checkpointing",
    )
    model = probe.model
    owners = [
        (part, each)
        for part in model.modules()
        for each in flags
        if isinstance(getattr(part, each, None), bool)
    ]
    if not owners:
        return
    before = [getattr(part, each) for part, each in owners]
    try:
        grads = []
        for state in (False, True):
            _set_checkpointing(model, owners, state)
            grads.append(_gradients(probe))
    except Exception:
        return
    finally:
        for (part, each), value in zip(owners, before, strict=True):
            setattr(part, each, value)
    plain, again = grads
    for name, value in plain.items():
        other = again.get(name)
        if other is None or float((value - other).abs().max()) > 1e-6 * max(
            1e-6, float(value.abs().max())
        ):
            yield finding(
                "checkpointing-changes-gradient",
                f"with activation checkpointing the gradient of {name} changes",
                Place(name.rpartition(".")[0]),
                shows="one backward pass in train mode, with and without",
                right="the recomputation sees the same state and the same random numbers",
            )
            return


def _set_checkpointing(model: Any, owners: list[tuple[nn.Module, str]], state: bool) -> None:
    if hasattr(model, "gradient_checkpointing_enable"):
        switch = "enable" if state else "disable"
        getattr(model, f"gradient_checkpointing_{switch}")()
        return
    for part, flag in owners:
        setattr(part, flag, state)


def _gradients(probe: Probe) -> dict[str, Tensor]:
    model = probe.model
    model.zero_grad(set_to_none=True)
    with training_mode(model, True):
        output = probe.run(probe.base, train=True, grad=True, seed=3)
        generator = torch.Generator().manual_seed(2)
        weights = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        from clearformer.verification.noise import default_dtype

        with default_dtype(probe.dtype):
            (output.double() * weights).sum().backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found
