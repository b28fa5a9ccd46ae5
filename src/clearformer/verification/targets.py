"""Targets: opens the module that a name or value stands for.

A text names a file and a class (`my_model.py:MyGPT`, `my_model.py:MyGPT(64, heads=4)`), a module
and a factory (`package.models:tiny`), a run, or a Hugging Face folder.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from clearformer.did_you_mean import nearest
from clearformer.verification.signature import required_arguments


@dataclass(frozen=True)
class Target:
    """A module with its requested name."""

    model: nn.Module
    label: str
    notes: tuple[str, ...] = ()


def open_target(target: Any) -> Target:
    """The module of a target; ValueError if there is none."""
    if isinstance(target, nn.Module):
        return Target(target, type(target).__name__)
    inner = getattr(target, "module", None)
    if isinstance(inner, nn.Module):  # clearformer's Model, and wrappers of the same shape
        return Target(inner, type(target).__name__)
    if isinstance(target, Path):
        return _folder(target)
    if isinstance(target, str):
        return _text(target)
    if inspect.isclass(target) or callable(target):
        name = getattr(target, "__name__", type(target).__name__)
        return Target(_made(target, name, "", ()), name)
    raise ValueError(
        f"{type(target).__name__} cannot be verified: pass a torch module, a class, "
        f"'file.py:Class', a run or a Hugging Face folder"
    )


def _text(text: str) -> Target:
    path = Path(text)
    if path.is_dir():
        return _folder(path)
    place, colon, name = text.partition(":")
    if not colon or not name:
        raise ValueError(
            f"{text!r} names no model: write file.py:Class, package.module:factory, or the folder "
            f"of a run or of a Hugging Face checkpoint"
        )
    name, arguments = _split_arguments(name)
    module = _module(place)
    if not hasattr(module, name):
        names = [each for each, value in vars(module).items() if callable(value) and each[0] != "_"]
        raise ValueError(f"{place} has no {name!r}: {nearest(name, names)}")
    return Target(_made(getattr(module, name), name, place, arguments), text)


def _split_arguments(name: str) -> tuple[str, Any]:
    """`Class(64, heads=4)` as a name and its arguments, which must be literals."""
    try:
        tree = ast.parse(name, mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            positional = [ast.literal_eval(each) for each in tree.args]
            named = {str(each.arg): ast.literal_eval(each.value) for each in tree.keywords}
            return tree.func.id, (positional, named)
        if isinstance(tree, ast.Name):
            return tree.id, ()
    except (SyntaxError, ValueError):
        pass
    raise ValueError(
        f"{name!r} is no class: write Class, or Class(64, heads=4) with numbers and texts only"
    )


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except Exception as problem:
            raise ValueError(f"{place} cannot be imported: {_reason(problem)}") from None
    path = Path(place)
    if not path.is_file():
        raise ValueError(f"{place}: there is no such file: check the path")
    spec = importlib.util.spec_from_file_location(f"_verified_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        raise ValueError(f"{place} cannot be imported: {_reason(problem)}") from None
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def _reason(problem: BaseException) -> str:
    said = " ".join(str(problem).split())[:300]
    if not said:  # a bare assert: show the line
        frames = traceback.extract_tb(problem.__traceback__)
        said = f"{frames[-1].line} (line {frames[-1].lineno})" if frames else "no message"
    return f"{type(problem).__name__}: {said}"


def _made(target: Any, name: str, place: str, arguments: Any) -> nn.Module:
    if isinstance(target, nn.Module):
        return target
    if not callable(target):
        raise ValueError(
            f"{name} is {type(target).__name__}, but a class of torch modules, a function that "
            f"returns one, or a module is wanted: name one of these"
        )
    if not arguments and inspect.isclass(target):
        missing = required_arguments(target)
        if missing:
            where = f"{place}:{name}" if place else name
            example = f"{where}({', '.join(f'{each}=...' for each in missing)})"
            raise ValueError(
                f"{name} needs arguments to be built ({', '.join(missing)}): write "
                f"'{example}', or name a function that builds it"
            )
    positional, named = arguments or ((), {})
    try:
        made = target(*positional, **named)
    except Exception as problem:
        raise ValueError(f"{name} cannot be built: {_reason(problem)}") from None
    if not isinstance(made, nn.Module):
        raise ValueError(
            f"{name} gives {type(made).__name__}, but a torch module is wanted: name a class of "
            f"one, or a function that returns one"
        )
    return made


def _folder(path: Path) -> Target:
    """A run, or a Hugging Face folder as clearformer reads it."""
    from clearformer.model import load

    model = load(path)
    return Target(model.module, str(path), (f"the model of {path}, {model.config.name}",))
