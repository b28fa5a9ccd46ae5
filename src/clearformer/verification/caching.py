"""Calling conventions of caches: how a model takes and returns one.

Axes: B batch, T tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearformer.verification.calls import Inputs
from clearformer.verification.probe import Probe

Extra = Callable[[int, int, Any], dict[str, Any]]  # (tokens before, batch, cache) to arguments


def _nothing(raw: Any) -> None:
    """For models that keep their cache themselves."""


@dataclass(frozen=True)
class CacheForm:
    """How a model is run in pieces."""

    label: str
    extra: Extra
    read: Callable[[Any], Any]  # from what was returned to the cache for the next call
    finish: Callable[[Any], None] = _nothing

    def run(self, probe: Probe, inputs: Inputs, pieces: Sequence[int], **options: Any) -> Tensor:
        """Outputs (B, T, *) of the same inputs, piece by piece."""
        outputs, before, cache = [], 0, None
        more = options.pop("more", None)
        for size in pieces:
            part = inputs.with_stream(inputs.stream[:, before : before + size])
            extra = self.extra(before, inputs.batch, cache)
            if more is not None:
                extra = {**extra, **more(before, before + size)}
            raw = probe.raw(part, extra=extra, **options)
            outputs.append(probe.output(raw, part))
            cache = self.read(raw) if before == 0 or self.read(raw) is not None else cache
            self.finish(extra)
            before += size
        return torch.cat(outputs, dim=1)


def find_cache(probe: Probe) -> CacheForm | None:
    """The way to run a model in pieces, if it has one."""
    if not probe.per_token or not probe.takes_tokens:
        return None
    if "_cache" not in probe.__dict__:
        probe.__dict__["_cache"] = next(
            (each for each in _forms(probe) if _works(probe, each)), None
        )
    return probe.__dict__["_cache"]


def _works(probe: Probe, form: CacheForm) -> bool:
    """Whether two pieces can be run in sequence, and the cache has an effect."""
    inputs = probe.inputs(batch=2, length=min(4, probe.length))
    try:
        output = form.run(probe, inputs, [inputs.length - 1, 1])
        plain = probe.run(inputs.with_stream(inputs.stream[:, -1:]))
    except Exception:
        return False
    if output.shape[1] != inputs.length:
        return False
    gap = float((output[:, -1] - plain[:, -1]).double().nan_to_num().abs().max())
    return gap > 1e-9 or form.label.startswith("clearformer")


def _forms(probe: Probe) -> Iterator[CacheForm]:
    yes = {each.name: True for each in probe.parameter("use_cache")}
    for each in probe.parameter("cache"):
        yield CacheForm(each.name, partial(_passed, yes, each.name), _returned_cache)
    for each in probe.parameter("start"):
        yield CacheForm(each.name, partial(_started, each.name), _nothing)
    yield from _own_caches(probe)


def _passed(yes: dict[str, Any], name: str, before: int, batch: int, cache: Any) -> dict[str, Any]:
    return {**yes, name: cache} if before else dict(yes)


def _started(name: str, before: int, batch: int, cache: Any) -> dict[str, Any]:
    return {name: before}


def _returned_cache(raw: Any) -> Any:
    """The cache among what was returned: not the logits, not a loss."""
    for name in (
        "past_key_values",
        "cache",
        "past",
        "mems",
        "cache_params",
        "state",
        "kv_cache",
        "present",
    ):
        value = raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)
        if value is not None:
            return value
    if isinstance(raw, list | tuple):
        rest = [each for each in raw[1:] if each is not None]
        rest = [each for each in rest if not (isinstance(each, Tensor) and each.dim() < 3)]
        return rest[-1] if rest else None
    return None


def _own_caches(probe: Probe) -> Iterator[CacheForm]:
    """Caches that live outside the model and are committed after each step, as in core.cache."""
    from clearformer.core.cache import KVCache

    stack = getattr(probe.model, "stack", None)
    if stack is None or not probe.accepts("caches") or not hasattr(stack, "blocks"):
        return
    made: dict[int, list[KVCache]] = {}

    def extra(before: int, batch: int, cache: Any) -> dict[str, Any]:
        if before == 0:
            made[0] = [KVCache() for _ in stack.blocks]
        return {"caches": made[0]}

    def finish(arguments: Any) -> None:
        for each in arguments["caches"]:
            each.advance()

    yield CacheForm("clearformer caches", extra, _nothing, finish)


def tensors_in(cache: Any) -> list[Tensor]:
    """Every tensor of a cache made of tuples and lists."""
    if isinstance(cache, Tensor):
        return [cache]
    if isinstance(cache, Mapping):
        return [each for value in cache.values() for each in tensors_in(value)]
    if isinstance(cache, list | tuple):
        return [each for value in cache for each in tensors_in(value)]
    return []


def copied(cache: Any) -> Any:
    return copy.deepcopy(cache)
