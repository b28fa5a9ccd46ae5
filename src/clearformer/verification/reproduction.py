"""Reproductions: findings as a few lines of plain torch, for tests that need no clearformer.

Each function gives the body of a test that fails as long as the bug is there, or None where the
model is called in a way that a few lines cannot show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearformer.verification.calls import Inputs
from clearformer.verification.probe import SOURCE, Probe

SMALL = 2e-3  # effects below this drown in the rounding of float32
CLOSE = "rtol=1e-4, atol=1e-4"
NAMES = ("logits", "last_hidden_state", "prediction_logits")


def literal(value: Any) -> str:
    """A value as Python code; tensors must hold integers or booleans."""
    if isinstance(value, Tensor):
        return f"torch.tensor({value.tolist()})"
    return repr(value)


def _stream(probe: Probe, stream: Tensor) -> str:
    if probe.takes_tokens:
        return literal(stream)
    batch, length, width = stream.shape
    return f"torch.randn({batch}, {length}, {width})"


def _accessor(probe: Probe) -> str | None:
    """How the output is taken from what the model returns."""
    raw = probe.raw(probe.base)
    found = probe.output(raw, probe.base)
    paths: dict[str, Any] = {"": raw}
    if isinstance(raw, Mapping):
        paths |= {f'["{name}"]': value for name, value in raw.items()}
    else:
        paths |= {f".{name}": getattr(raw, name, None) for name in NAMES}
        if isinstance(raw, tuple | list) and not hasattr(raw, "keys"):
            paths |= {f"[{at}]": value for at, value in enumerate(raw)}
    for path, value in paths.items():
        same = isinstance(value, Tensor) and value.shape == found.shape
        if same and bool(value.isclose(found, equal_nan=True).all()):
            return path
    return None


def _run(probe: Probe, inputs: Inputs, extra: Mapping[str, Any] | None = None) -> list[str] | None:
    """The lines that define `run(x, **more)` for inputs of this shape."""
    accessor = _accessor(probe)
    if accessor is None or probe.form.time_first:
        return None
    form, more = probe.form, dict(extra or {})
    lines, arguments = [], [] if form.stream else ["x"]
    if form.stream:
        arguments.append(f"{form.stream}=x")
    arguments += [f"{name}=x" for name in form.same]
    if form.source is not None:
        source = inputs.source
        assert source is not None
        drawn = f"torch.randn({inputs.batch}, {SOURCE}, {source.shape[-1]})"
        lines.append(f"source = {literal(source) if form.source_is_tokens else drawn}")
        arguments.append(f"{form.source}=source")
    for name, make in form.supplied.items():
        value = make(inputs.batch, inputs.length, torch.float32)
        if isinstance(value, Tensor) and value.is_floating_point():
            return None
        arguments.append(f"{name}={literal(value)}")
    if probe.accepts("use_cache") and "use_cache" not in more:
        more["use_cache"] = False
    for name, value in more.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            return None
        arguments.append(f"{name}={literal(value)}")
    call = ", ".join([*arguments, "**more"])
    return [
        *lines,
        "def run(x, **more):",
        "    torch.manual_seed(0)",
        "    with torch.no_grad():",
        f"        return model({call}){accessor}",
        "",
    ]


def _changed(probe: Probe, inputs: Inputs, row: int, position: int) -> list[str]:
    after = probe.change(inputs, row, position).stream[row, position]
    new = f"= {int(after)}" if probe.takes_tokens else "+= 1.0"
    return [
        f"x = {_stream(probe, inputs.stream)}",
        "other = x.clone()",
        f"other[{row}, {position}] {new}",
    ]


def no_effect(
    probe: Probe, length: int, changed: int, effect: float, *, train: bool = False
) -> str | None:
    """Outputs before a position do not change with it."""
    inputs = probe.inputs(batch=2, length=length)
    run = _run(probe, inputs)
    if run is None or effect < SMALL:
        return None
    lines = [*(["model.train()"] if train else []), *run, *_changed(probe, inputs, 0, changed)]
    lines.append(f"# Outputs before position {changed} must not know what stands there.")
    before = f"[0, :{changed}]"
    lines.append(f"torch.testing.assert_close(run(other){before}, run(x){before}, {CLOSE})")
    return "\n".join(lines)


def has_effect(probe: Probe, output: int, changed: int) -> str | None:
    """An output changes with an input that it should see."""
    inputs = probe.inputs(batch=2)
    run = _run(probe, inputs)
    if run is None:
        return None
    lines = [*run, *_changed(probe, inputs, 0, changed)]
    lines.append(f"gap = (run(other)[0, {output}] - run(x)[0, {output}]).abs().max()")
    lines.append(f'assert gap > 1e-6, "output {output} does not depend on input {changed}"')
    return "\n".join(lines)


def rows_apart(probe: Probe, effect: float) -> str | None:
    """A row does not change when another one is replaced."""
    inputs = probe.inputs(batch=3)
    run = _run(probe, inputs)
    if run is None or effect < SMALL:
        return None
    other = probe.inputs(batch=3, seed=77).stream[1]
    new = literal(other) if probe.takes_tokens else "torch.randn_like(x[1])"
    lines = [*run, f"x = {_stream(probe, inputs.stream)}", "other = x.clone()", f"other[1] = {new}"]
    lines.append(f"torch.testing.assert_close(run(other)[0], run(x)[0], {CLOSE})")
    return "\n".join(lines)


def twice(probe: Probe) -> str | None:
    """The same call gives the same output."""
    run = _run(probe, probe.base)
    if run is None:
        return None
    run = [line for line in run if "manual_seed" not in line]
    lines = [*run, f"x = {_stream(probe, probe.base.stream)}"]
    lines.append("torch.testing.assert_close(run(x), run(x), rtol=0, atol=0)")
    return "\n".join(lines)


def gradients(probe: Probe) -> str | None:
    """Every parameter gets a gradient."""
    run = _run(probe, probe.base)
    if run is None:
        return None
    run = [line.replace("torch.no_grad()", "torch.enable_grad()") for line in run]
    lines = [*run, f"x = {_stream(probe, probe.base.stream)}", "run(x).square().sum().backward()"]
    lines.append("unused = [name for name, each in model.named_parameters() if each.grad is None]")
    lines.append("assert not unused, unused")
    return "\n".join(lines)


def padding_unseen(
    probe: Probe, arguments: Mapping[str, Any], one: Inputs, two: Inputs, real: Tensor
) -> str | None:
    """Real tokens do not change with what stands in masked positions."""
    run = _run(probe, one, arguments)
    if run is None or not probe.takes_tokens:
        return None
    kept = f"[0, {real[0].nonzero().flatten().tolist()}]" if probe.per_token else "[0]"
    return "\n".join(
        [
            *run,
            f"x = {literal(one.stream)}",
            f"other = {literal(two.stream)}  # other tokens where the mask hides them",
            f"torch.testing.assert_close(run(other){kept}, run(x){kept}, {CLOSE})",
        ]
    )


def loss_is_shifted(probe: Probe, name: str, shift: int) -> str | None:
    """The model's loss is not the cross-entropy with targets shifted wrongly."""
    run = _run(probe, probe.base)
    if run is None:
        return None
    labels = probe.inputs(seed=9).stream
    kept = "" if shift == 0 else f", :-{shift}"
    rest = "" if shift == 0 else f", {shift}:"
    call = run[-2].strip().removeprefix("return ")
    outcome = call[: call.rindex(")") + 1].replace("**more", f"{name}=labels")
    return "\n".join(
        [
            *run,
            f"x = {literal(probe.base.stream)}",
            f"labels = {literal(labels)}",
            f"outcome = {outcome}",
            "parts = list(outcome.values()) if hasattr(outcome, 'values') else outcome",
            "loss = next(each for each in parts if each is not None and each.dim() == 0)",
            f"logits, wanted = run(x)[:{kept}], labels[:{rest}]",
            "wrong = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())",
            f'assert abs(loss - wrong) > 1e-3, "targets are shifted by {shift}"',
        ]
    )


def cache_continues(
    probe: Probe, name: str, index: str, yes: Mapping[str, Any], pieces: list[int]
) -> str | None:
    """A prefix and single tokens with the cache give what the whole text gives."""
    inputs = probe.inputs(batch=2)
    run, accessor = _run(probe, inputs, {**yes}), _accessor(probe)
    if run is None or accessor is None or not probe.takes_tokens:
        return None
    call = run[-2].strip().removeprefix("return ")
    outcome = call[: call.rindex(")") + 1]
    return "\n".join(
        [
            *run,
            f"x = {literal(inputs.stream)}",
            "whole, cache, start, outputs = run(x), None, 0, []",
            f"for size in {pieces}:",
            "    piece = x[:, start : start + size]",
            f"    more = {{}} if cache is None else {{{name!r}: cache}}",
            "    with torch.no_grad():",
            f"        outcome = {outcome.replace('=x', '=piece').replace('(x', '(piece')}",
            f"    outputs.append(outcome{accessor})",
            f"    cache, start = outcome{index}, start + size",
            f"torch.testing.assert_close(torch.cat(outputs, dim=1), whole, {CLOSE})",
        ]
    )
