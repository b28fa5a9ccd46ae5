"""Cache checks: results step by step equal those of the whole sequence.

Axes: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearformer.verification import reproduction
from clearformer.verification.attention import find_attention
from clearformer.verification.caching import CacheForm, copied, find_cache, tensors_in
from clearformer.verification.entries import finding
from clearformer.verification.findings import Finding, Place, Severity
from clearformer.verification.padding import find_mask
from clearformer.verification.probe import SOURCE, Probe
from clearformer.verification.trace import Recorder


def _large(probe: Probe) -> float:
    """Differences larger than rounding in another order; recurrent layers round more."""
    return 1e-4 if probe.dtype is torch.float64 else 5e-3


def steps(probe: Probe) -> Iterator[Finding]:
    """Single tokens, chunks and left-padded rows match the whole text."""
    form = find_cache(probe)
    if form is None or (not probe.claim.causal and probe.form.source is None):
        return
    inputs = probe.inputs(batch=2)
    whole = probe.run(inputs)
    length = inputs.length
    alone = probe.run(inputs.rows(0))
    for pieces, label in (
        ([length - 2, 1, 1], "a prefix, then single tokens"),
        ([1] * length, "single tokens"),
        ([2, length - 2], "two chunks"),
    ):
        try:
            got = form.run(probe, inputs, pieces)
        except Exception:
            continue
        effect = probe.differs(got, whole)
        if effect > _large(probe):
            rows = form.run(probe, inputs.rows(0), pieces)
            fine_alone = probe.differs(rows, alone) <= _large(probe)
            found = _differs(probe, form, pieces, label, effect, fine_alone)
            found = replace(found, reproduction=_reproduced(probe, form, pieces))
            if label == "two chunks" and found.name == "cache-differs":
                # Recurrent layers continue token by token only; masks have a name of their own.
                found = replace(found, severity=Severity.INFO)
            yield found
            return
    yield from _padded_steps(probe, form)


def _reproduced(probe: Probe, form: CacheForm, pieces: list[int]) -> str | None:
    """The same in plain torch, where the cache is returned and passed on by name."""
    if not probe.accepts(form.label):
        return None
    extra = form.extra(0, 2, None)
    raw = probe.raw(probe.inputs(batch=2), extra=extra)
    cache = form.read(raw)
    paths: list[tuple[str, Any]] = []
    if isinstance(raw, Mapping):
        paths = [(f'["{name}"]', value) for name, value in raw.items()]
    elif isinstance(raw, list | tuple):
        paths = [(f"[{at}]", value) for at, value in enumerate(raw)]
    index = next((path for path, value in paths if value is cache), None)
    if cache is None or index is None:
        return None
    return reproduction.cache_continues(probe, form.label, index, extra, pieces)


def _differs(
    probe: Probe, form: CacheForm, pieces: list[int], label: str, effect: float, alone: bool
) -> Finding:
    shows = f"{label}: pieces of {pieces} with {form.label}"
    if alone:
        return finding(
            "cache-shared-between-rows",
            f"{label} gives other outputs in a batch, but not for one row: rows share the cache",
            shows=shows,
            effect=effect,
            right="a cache has a row for each row of the batch",
        )
    moved = _moved(probe, form)
    if moved is not None:
        return finding(
            "positions-not-offset-in-cache",
            f"{label} gives other outputs: queries of the first layer differ, as if the new token "
            f"were at another position",
            moved,
            shows=shows,
            effect=effect,
            right="positions of new tokens begin at the length of the cache",
        )
    corner = _corner(probe, form, pieces)
    if corner is not None:
        return corner
    return finding(
        "cache-differs",
        f"{label} gives other outputs than the whole text at once",
        shows=shows,
        effect=effect,
        right="the same outputs, whatever the pieces",
    )


def _last_queries(probe: Probe, form: CacheForm | None) -> tuple[Tensor | None, Place]:
    """Queries (H, D) of the last token in the first attention, with or without a cache."""
    inputs = probe.inputs(batch=1)
    recorder = Recorder(probe.model)
    if form is None:
        with recorder.recording() as trace:
            probe.raw(inputs)
    else:
        size = inputs.length - 1
        first = inputs.with_stream(inputs.stream[:, :size])
        extra = form.extra(0, 1, None)
        cache = form.read(probe.raw(first, extra=extra))
        form.finish(extra)
        with recorder.recording() as trace:
            probe.raw(inputs.with_stream(inputs.stream[:, size:]), extra=form.extra(size, 1, cache))
    events = find_attention(trace)
    if not events or events[0].q is None:
        return None, Place()
    q = events[0].q
    axis = -2
    return q.select(axis, q.shape[axis] - 1).flatten(), events[0].place


def _moved(probe: Probe, form: CacheForm) -> Place | None:
    """Where queries of a new token differ with a cache: its position does."""
    try:
        (whole, _), (step, place) = _last_queries(probe, None), _last_queries(probe, form)
    except Exception:
        return None
    if whole is None or step is None or whole.shape != step.shape:
        return None
    return place if float((whole - step).abs().max()) > 1e-5 * float(whole.abs().max()) else None


def _corner(probe: Probe, form: CacheForm, pieces: list[int]) -> Finding | None:
    """A causal mask with more keys than queries that is aligned to the first keys."""
    inputs = probe.inputs(batch=1)
    half = inputs.length // 2
    extra = form.extra(0, 1, None)
    cache = form.read(probe.raw(inputs.with_stream(inputs.stream[:, :half]), extra=extra))
    form.finish(extra)
    recorder = Recorder(probe.model)
    try:
        with recorder.recording() as trace:
            rest = inputs.with_stream(inputs.stream[:, half:])
            probe.raw(rest, extra=form.extra(half, 1, cache))
    except Exception:
        return None
    for event in find_attention(trace):
        seen = event.seen
        if seen is None or seen.shape[0] >= seen.shape[1] or seen.shape[0] < 2:
            continue
        before = seen.shape[1] - seen.shape[0]
        if bool(seen[0, 0]) and not bool(seen[0, 1:before].any()) and before > 1:
            return finding(
                "causal-aligned-top-left",
                f"{seen.shape[0]} queries over {seen.shape[1]} keys: query 0 sees key 0 only, but "
                f"it is the {seen.shape[1] - seen.shape[0] + 1}th token",
                event.place,
                shows=f"a cache of {half}, then {inputs.length - half} tokens",
                right="the last query sees all keys: tril(diagonal=K - Q)",
            )
    return None


def _padded_steps(probe: Probe, form: CacheForm) -> Iterator[Finding]:
    """Left-padded rows with a cache match those without."""
    mask = find_mask(probe).mask
    if mask is None or mask.shape != "BT" or probe.form.source is not None:
        return
    inputs = probe.inputs(batch=2)
    real = torch.ones(2, inputs.length, dtype=torch.bool)
    real[0, :2] = False
    try:
        whole = probe.run(inputs, extra=mask.arguments(real))

        def more(start: int, end: int) -> dict[str, Any]:
            found = mask.arguments(real[:, :end])
            if mask.positions is not None:
                found[mask.positions] = found[mask.positions][:, start:end]
            return found

        got = form.run(probe, inputs, [inputs.length - 2, 1, 1], more=more)
    except Exception:
        return
    keep = real[:, :, None].expand_as(whole)
    effect = probe.differs(got[keep], whole[keep])
    if effect > _large(probe):
        yield finding(
            "cache-differs",
            "a left-padded batch gives other outputs with a cache than without",
            shows=f"{mask.name} {real.int().tolist()}",
            effect=effect,
            right="the same outputs, whatever the pieces",
        )


def second_use(probe: Probe) -> Iterator[Finding]:
    """The same call twice gives the same output, and a cache that was used is unchanged."""
    one, two = probe.run(probe.base), probe.run(probe.base)
    if probe.differs(one, two):
        yield finding(
            "cache-mutated-in-place",
            "the same call gives another output the second time, with the same random numbers: the "
            "model keeps state between calls",
            shows="the same inputs twice",
            effect=probe.differs(one, two),
            right="state is passed in and returned, or reset",
        )
        return
    form = find_cache(probe)
    if form is None or form.label in ("start_pos", "clearformer caches"):
        return
    inputs = probe.inputs(batch=2)
    size = inputs.length - 2
    first = inputs.with_stream(inputs.stream[:, :size])
    rest = inputs.with_stream(inputs.stream[:, size:])
    try:
        cache = form.read(probe.raw(first, extra=form.extra(0, 2, None)))
        held = tensors_in(cache)
        before = [each.clone() for each in held]
        probe.raw(rest, extra=form.extra(size, 2, cache))
        copied(cache)
    except Exception:
        return
    changed = [a.shape != b.shape or not a.equal(b) for a, b in zip(held, before, strict=True)]
    if (held and any(changed)) or len(tensors_in(cache)) != len(held):
        yield finding(
            "cache-mutated-in-place",
            "the cache that was passed in is changed by the call: a second continuation of "
            "the same prefix reads the first one",
            shows=f"a cache of {size} tokens, used twice",
            right="cat makes a new tensor; the old cache is unchanged",
        )


def source_recomputed(probe: Probe) -> Iterator[Finding]:
    """With a cache the source's keys and values are not computed at each step."""
    form = find_cache(probe)
    if form is None or probe.form.source is None:
        return
    inputs = probe.inputs(batch=1)
    extra = form.extra(0, 1, None)
    cache = form.read(probe.raw(inputs.with_stream(inputs.stream[:, :3]), extra=extra))
    recorder = Recorder(probe.model)
    with recorder.recording() as trace:
        probe.raw(inputs.with_stream(inputs.stream[:, 3:4]), extra=form.extra(3, 1, cache))
    decoder = [op for op in trace.named("linear") if "decoder" in op.place.module]
    for op in decoder:
        x = op.tensors[0]
        if x.dim() == 3 and x.shape[1] == SOURCE:
            yield finding(
                "cross-attention-recomputed",
                "keys and values of the source are computed again at each step",
                op.place,
                right="compute them once and keep them",
            )
            return
