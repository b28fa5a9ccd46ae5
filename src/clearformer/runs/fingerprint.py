"""A fingerprint of how a model computes: its classes, functions and settings, not its weights.

A checkpoint holds a config and weights by name. A model that somebody's own builder made may have
the same names and shapes and still be another function; its fingerprint tells it from the model
that clearformer builds from the same config.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from torch import Tensor, nn

from clearformer import __version__
from clearformer.builder import build, outline
from clearformer.config import AnyModelConfig, RunConfig
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.runs.checkpoint import Checkpoint

Model = Transformer | Seq2Seq
Builder = Callable[[AnyModelConfig, int], Model]
OWN = "builder"  # what a manifest calls the fingerprint of a model that is not clearformer's own
INTERNAL = frozenset(vars(nn.Module()))  # what every module has
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
DEEPEST = 5  # values in values that are looked at


def of_own_builder(model: Model, config: AnyModelConfig, make: Builder) -> str | None:
    """The fingerprint of a model that `make` gave; None: it is the one that `build` gives."""
    if make is build:
        return None
    found = fingerprint(model)
    return None if found == fingerprint(outline(config)) else found


def built(found: Checkpoint, config: RunConfig, make: Builder) -> Model:
    """A model for the weights of a checkpoint, by the builder that it was trained with.

    Its weights are yet to come: what `build` would give has no memory for them.
    """
    own = found.manifest.get(OWN)
    if make is not build:
        model = make(config.model, config.train.seed)
        require_same(model, config.model, found)
        return model
    if own is not None:
        raise ValueError(
            f"{found.folder} was trained with a model builder of its own, and would be another "
            f"model without it: open it in Python and pass that builder, as in open_run(path, "
            f"make=builder)"
        )
    return outline(config.model)


def require_same(model: Model, config: AnyModelConfig, found: Checkpoint) -> None:
    """Refuse a model that computes something else than the one whose weights are in `found`.

    A checkpoint from before builders were recorded tells nothing, and one that another version
    wrote only that its model was not clearformer's own: classes may have other names since.
    """
    own, model_is = found.manifest.get(OWN), fingerprint(model)
    stock = own is not None and model_is == fingerprint(outline(config))
    if stock or (found.manifest.get("clearformer") == __version__ and own not in (None, model_is)):
        raise ValueError(
            f"{found.folder} was trained with a model builder of its own, and this one gives "
            f"another model: pass the builder that it was trained with as make="
        )


def fingerprint(model: nn.Module) -> str:
    """A hash of what the modules are; equal for two models that differ in their weights alone."""
    return hashlib.sha256("\n".join(_lines(model)).encode()).hexdigest()


def _lines(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules(remove_duplicate=False):
        yield f"{name}: {_name(type(module))}"
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            yield f"{name}.{key} = {_value(tensor, DEEPEST)}"
        for key, value in sorted(vars(module).items()):
            if key in HOOKS or key not in INTERNAL:
                yield f"{name}.{key} = {_value(value, DEEPEST)}"


def _value(value: Any, deep: int) -> str:
    """What a value is, without addresses and without numbers that are learned."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Tensor):
        return f"tensor {tuple(value.shape)}"
    if isinstance(value, nn.Module):
        return _name(type(value))
    if deep == 0:
        return _name(value if callable(value) else type(value))
    inner = functools.partial(_value, deep=deep - 1)
    if isinstance(value, Mapping):
        return f"{{{', '.join(inner(each) for each in value.values())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inner, value))}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(inner, value)))}}}"
    if isinstance(value, functools.partial):
        return f"partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})"
    if isinstance(value, type):
        return _name(value)
    if hasattr(value, "__qualname__"):
        return f"{_name(value)}({', '.join(map(inner, _enclosed(value)))})"
    slots = {name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())}
    return f"{_name(type(value))}{inner({**slots, **getattr(value, '__dict__', {})})}"


def _enclosed(function: Any) -> Iterator[Any]:
    """The values that a function was made with."""
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # it is not filled yet
            yield cell.cell_contents


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value))}"
