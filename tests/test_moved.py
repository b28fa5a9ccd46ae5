"""Deprecated import paths of 0.1."""

import importlib
import re
import sys
from pathlib import Path

import pytest

import clearformer
from clearformer import moved
from clearformer.builder import build

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _forget_old_modules():
    """Restore the package, since an import of an old path sets an attribute of it."""
    yield
    for name in list(sys.modules):
        if isinstance(sys.modules[name], moved.MovedModule):
            del sys.modules[name]
    for name in moved.FUNCTIONS:
        vars(clearformer).pop(name, None)


@pytest.mark.parametrize("old", moved.MOVED)
def test_every_old_path_imports_with_warning(old):
    for new in moved.MOVED[old].split():
        assert importlib.import_module(f"clearformer.{new}")
    with pytest.warns(DeprecationWarning, match=" is now ") as warned:
        importlib.import_module(f"clearformer.{old}")
    assert str(warned[-1].message).startswith(f"clearformer.{old} is now clearformer.")


def test_old_names_resolve_to_new_modules():
    with pytest.warns(DeprecationWarning, match="clearformer.build is now clearformer.builder"):
        from clearformer.build import build as old
    assert old is build
    with pytest.warns(DeprecationWarning, match=" is now "):
        from clearformer.train.run import Run
    assert Run.__module__ == "clearformer.runs.run"
    with pytest.warns(DeprecationWarning, match=" is now "), pytest.raises(ImportError):
        from clearformer.generate.choose import nothing_like_this  # noqa: F401


def test_functions_stay_callable_after_old_import(small):
    with pytest.warns(DeprecationWarning, match="clearformer.build is now"):
        import clearformer.build
    with pytest.warns(DeprecationWarning, match="clearformer.train is now"):
        import clearformer.train
    config = small("gpt2", vocabulary=256)
    assert type(clearformer.build(config)) is type(build(config))
    with pytest.raises(ValueError, match="there is no model 'nothing'"):
        clearformer.train("nothing")


def test_table_matches_adr():
    """docs/adr/0015-three-rings.md is for people with an old branch, this one for their code."""
    page = (ROOT / "docs/adr/0015-three-rings.md").read_text()
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", page, re.MULTILINE)
    told = {
        path.replace("/", ".")
        for old, _ in rows
        for path in re.findall(r"`([\w/]+)\.py`", old)
        if not path.startswith(("cli/", "selftest/"))
    }
    kept = {  # train/ as a whole is one row of the page
        old for old, new in moved.MOVED.items() if new != old.replace("train.", "training.")
    }
    assert kept - {"train"} <= told | {"build"}
