"""Model and the front door: what they offer, and its documentation."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clearformer as cf


def test_import_does_not_load_torch():
    code = "import sys, clearformer; assert 'torch' not in sys.modules; print(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 250
    assert {*cf.PUBLIC, "__version__"} == set(cf.__all__) <= set(dir(cf))
    for name in cf.__all__:
        assert getattr(cf, name)
    with pytest.raises(AttributeError, match="no attribute 'laod'; did you mean 'load'"):
        cf.laod  # noqa: B018


def test_help_documents_every_parameter():
    """With its type in parentheses; of a method that takes the options of another, those it has."""
    functions = [each for name in cf.__all__ if inspect.isfunction(each := getattr(cf, name))]
    methods = ("generate", "completions", "stream", "classify", "fill", "embed", "translate",
               "evaluate", "trace", "save", "export", "compile", "optimize")  # fmt: skip
    functions += [getattr(cf.Model, name) for name in methods]
    assert len(functions) >= 20
    for function in functions:
        told = inspect.getdoc(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if name == "self":
                continue
            stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
            listed = re.search(rf"^ +(\w+, )*{re.escape(stars)}{name}(, \w+)*( \(|:)", told, re.M)
            assert listed, f"{function.__qualname__} does not document {name}"


def test_public_signatures_do_not_use_any():
    """Of the front door and of core: a type says what to pass, and what comes back."""
    public = [value for name in cf.__all__ if callable(value := getattr(cf, name))]
    methods = [vars(cf.Model), vars(cf.Training), vars(cf.Trace)]
    public += [each for members in methods for name, each in members.items() if name[0] != "_"]
    for each in public:
        if inspect.isfunction(each):
            told = " ".join(map(str, inspect.get_annotations(each).values()))
            assert not re.search(r"\bAny\b", told), f"{each.__qualname__}: {told}"
    for path in Path(cf.core.__file__).parent.glob("*.py"):
        assert not re.search(r"\bAny\b", path.read_text()), path.name
