"""Fingerprint of a model's architecture: a hash of its classes, functions and settings.

A checkpoint holds a config and weights by name. A model from a custom builder may have the same
names and shapes and still compute something else; its fingerprint distinguishes it from the model
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
BUILDER = "builder"  # key in a manifest: the fingerprint of a model from a custom builder
MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # attributes of every module
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
MAX_DEPTH = 5  # of nested values


def custom_fingerprint(model: Model, config: AnyModelConfig, make: Builder) -> str | None:
    """The fingerprint of a model that `make` built; None if `build` builds the same."""
    if make is build:
        return None
    own = fingerprint(model)
    return None if own == fingerprint(outline(config)) else own


def model_for(saved: Checkpoint, config: RunConfig, make: Builder) -> Model:
    """A model without weights for a checkpoint, by the builder that it was trained with."""
    own = saved.manifest.get(BUILDER)
    if make is not build:
        model = make(config.model, config.train.seed)
        require_same(model, config.model, saved)
        return model
    if own is not None:
        raise ValueError(
            f"{saved.folder} was trained with a custom model builder and cannot be opened without "
            f"it: open it in Python and pass that builder, as in open_run(path, make=builder)"
        )
    return outline(config.model)


def require_same(model: Model, config: AnyModelConfig, saved: Checkpoint) -> None:
    """Raise ValueError for a model that computes something else than the one in `saved`.

    Older checkpoints did not record their builder. Fingerprints of other versions are not compared,
    since classes may have been renamed.
    """
    recorded, actual = saved.manifest.get(BUILDER), fingerprint(model)
    standard = recorded is not None and actual == fingerprint(outline(config))
    if standard or (
        saved.manifest.get("clearformer") == __version__ and recorded not in (None, actual)
    ):
        raise ValueError(
            f"{saved.folder} was trained with a custom model builder, and this builder makes "
            f"another model: pass the builder that it was trained with as make="
        )


def fingerprint(model: nn.Module) -> str:
    """A hash of the modules and their settings; it does not depend on the weights."""
    return hashlib.sha256("\n".join(_lines(model)).encode()).hexdigest()


def _lines(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules(remove_duplicate=False):
        yield f"{name}: {_name(type(module))}"
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            yield f"{name}.{key} = {_value(tensor, MAX_DEPTH)}"
        for key, value in sorted(vars(module).items()):
            if key in HOOKS or key not in MODULE_ATTRIBUTES:
                yield f"{name}.{key} = {_value(value, MAX_DEPTH)}"


def _value(value: Any, deep: int) -> str:
    """A description of a value, without addresses and learned numbers."""
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
    """The values in the closure of a function."""
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # it is not filled yet
            yield cell.cell_contents


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value))}"
