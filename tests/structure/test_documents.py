"""Documents agree with the code: equations, file tree, reading order, errata."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "clearformer"
CITATION = re.compile(r"\beq\. (\d+)")


def numbers(text):
    """Every number cited, ranges ("eq. 1 to eq. 3") included."""
    found = {int(number) for number in CITATION.findall(text)}
    for first, last in re.findall(r"eq\. (\d+) to eq\. (\d+)", text, re.IGNORECASE):
        found |= set(range(int(first), int(last) + 1))
    return found


def cited():
    return {
        number
        for path in SOURCE.rglob("*.py")
        for number in numbers(path.read_text().replace("Eq. ", "eq. "))
    }


def defined():
    text = (ROOT / "docs/equations.md").read_text()
    return {int(number) for number in re.findall(r"\*\*eq\. (\d+)\*\*", text)}


def test_every_cited_equation_is_defined():
    assert cited() - defined() == set()


def test_every_equation_is_cited_by_code():
    assert defined() - cited() == set()


def test_equations_name_files_that_cite_them():
    rows = re.findall(
        r"\*\*eq\. (\d+)\*\*.*\| (`[^|]*`) \|$",
        (ROOT / "docs/equations.md").read_text(),
        re.MULTILINE,
    )
    assert len(rows) == len(defined())
    for number, files in rows:
        for file in re.findall(r"`([^`]+)`", files):
            text = (SOURCE / file).read_text().replace("Eq. ", "eq. ")
            assert int(number) in numbers(text), f"{file} does not cite eq. {number}"


def tracked_files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return set(listed.stdout.split("\n")) - {""}


def readme_tree():
    """The paths named in the README's tree, by its indentation."""
    text = (ROOT / "README.md").read_text()
    block = re.search(r"```text\n(.*?)```", text.split("## The files")[1], re.DOTALL)[1]
    paths, parents = set(), []
    for line in block.splitlines():
        indent, name, purpose = re.match(r"( *)(\S+) +(.+)", line).groups()
        assert purpose, f"{name} has no purpose in the README"
        parents = parents[: len(indent) // 2]
        paths.add("/".join([*parents, name]).replace("//", "/"))
        parents.append(name.rstrip("/"))
    return paths


def test_readme_lists_every_package():
    """One line for each package, and for the modules of the public API."""
    inside = [
        path.removeprefix("src/clearformer/").split("/")
        for path in tracked_files()
        if path.startswith("src/clearformer/") and path.endswith(".py")
    ]
    rooms = {f"{parts[0]}/" for parts in inside if len(parts) > 1}
    prefix = "src/clearformer/"
    listed = {path.removeprefix(prefix) for path in readme_tree() if path.startswith(prefix)}
    assert {path for path in listed if path.endswith("/")} - {""} == rooms


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_path_in_the_readme_tree_exists():
    for path in readme_tree():
        assert (ROOT / path).exists(), path


def test_tests_mirror_the_source():
    """A test file for each source file that computes something (cli/tables by its users)."""
    untested = {"__main__", "__init__", "tables"}  # cli/tables
    for path in SOURCE.rglob("*.py"):
        if path.stem in untested or path.parent.name == "families":
            continue
        mirror = ROOT / "tests" / path.parent.relative_to(SOURCE) / f"test_{path.stem}.py"
        assert mirror.exists(), f"{path.relative_to(ROOT)} has no {mirror.relative_to(ROOT)}"


def test_every_erratum_names_a_test_that_exists():
    text = (ROOT / "docs/errata.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) >= 9
    for file, test in named:
        assert f"def {test}" in (ROOT / file).read_text(), f"{file} has no {test}"


@pytest.mark.parametrize("path", sorted((SOURCE / "core").glob("*.py")), ids=lambda p: p.name)
def test_core_files_state_their_axes_and_stay_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400, "one afternoon to read: split it or say less"
    if path.name not in {"__init__.py", "init.py"}:
        assert "\nAxes: " in text


def test_no_catch_all_modules():
    forbidden = {"utils.py", "common.py", "helpers.py", "misc.py"}
    assert not {path.name for path in SOURCE.rglob("*.py")} & forbidden


def test_no_unsafe_deserialization():
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    for word in ("import pickle", "torch.save(", "weights_only=False", 'eval("'):
        assert word not in text
    # Only where an importer is asked for it, and then for tensors alone.
    assert text.count("torch.load(") == 1
    call = (SOURCE / "hub/pickle_files.py").read_text().split("torch.load(")[1].split(")")[0]
    assert "weights_only=True" in call


def test_importing_configs_and_the_command_line_does_not_import_torch():
    script = (
        "import sys, clearformer.cli.main, clearformer.config, clearformer.families;"
        "sys.exit('torch' in sys.modules)"
    )
    import sys

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
