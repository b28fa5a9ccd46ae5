"""Builds the notebooks from their scripts, and executes them: `make notebooks`.

python examples/notebooks/build.py            writes NAME.ipynb beside each NAME.py
python examples/notebooks/build.py --execute  also runs it, into build/notebooks
"""

import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
SECONDS = 3600  # that a cell may take, on a machine with much else to do


def scripts():
    return sorted(path for path in HERE.glob("*.py") if path.name != "build.py")


def notebook(script):
    """The notebook of a script, without outputs; the same bytes each time."""
    found = jupytext.read(script)
    found.metadata.pop("jupytext", None)
    for place, cell in enumerate(found.cells):
        cell.id = f"{script.stem}-{place}"
    return found


def text(found):
    return nbformat.writes(found) + "\n"


def execute(found, folder):
    """Run every cell; an error in one is raised."""
    folder.mkdir(parents=True, exist_ok=True)
    # On a busy machine the start of a kernel and the last outputs of a cell are late too.
    patient = dict.fromkeys(("timeout", "startup_timeout", "iopub_timeout"), SECONDS)
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(found, kernel_name="python3", resources=where, **patient).execute()
    return found


def main(words):
    for script in scripts():
        found = notebook(script)
        script.with_suffix(".ipynb").write_text(text(found), encoding="utf-8")
        if "--execute" in words:
            folder = HERE.parents[1] / "build" / "notebooks"
            execute(found, folder)
            (folder / f"{script.stem}.ipynb").write_text(text(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
