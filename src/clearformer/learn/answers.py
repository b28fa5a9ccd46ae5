"""Loads a learner's answer file, as code of the user, in this process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from clearformer.did_you_mean import closest
from clearformer.learn.forms import Answer
from clearformer.learn.judge import error_line

MODULE = "clearformer_answer"


def load_answer(path: Path, name: str) -> Answer:
    """The function `name` of a Python file; every problem with the file is one sentence."""
    module = _import(path)
    found = getattr(module, name, None)
    if found is None:
        own = [each for each, value in vars(module).items() if callable(value)]
        guess = closest(name, own)
        hint = "define one" if guess is None else f"did you mean {guess} to be it?"
        raise ValueError(f"{path} has no function {name}: {hint}")
    if not callable(found):
        raise ValueError(f"{path}: {name} is a {type(found).__name__}, but it must be a function")
    answer: Answer = found
    return answer


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"there is no file {path}: give the Python file with your answer")
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # As for a script: it may import its neighbours, and leaves no compiled file beside itself.
    wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as problem:
        raise ValueError(f"{path}, line {problem.lineno}: {problem.msg}") from None
    except (Exception, SystemExit) as problem:
        raise ValueError(f"{path} fails: {error_line(problem, spec.origin)}") from None
    finally:
        sys.path.remove(str(path.parent.resolve()))
        sys.dont_write_bytecode = wrote
    return module
