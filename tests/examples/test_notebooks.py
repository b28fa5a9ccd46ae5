"""The notebooks: built from their scripts, and every cell runs."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples/notebooks"


def load_build():
    spec = importlib.util.spec_from_file_location("build_notebooks", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


@pytest.mark.parametrize("script", build.scripts(), ids=lambda path: path.stem)
def test_notebook_matches_script(script):
    built = build.text(build.notebook(script))
    assert built == script.with_suffix(".ipynb").read_text(), "run: make notebooks"


def outputs(notebook, kind):
    """The outputs of one media type, in order."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    found = (output.get("data", {}) for cell in cells for output in cell.outputs)
    return [data[kind] for data in found if kind in data]


def test_quickstart_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests run in parallel
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = build.execute(build.notebook(FOLDER / "quickstart.py"), tmp_path / "cwd")
    pages = outputs(done, "text/html")
    bar = next(page for page in pages if "<progress" in page)
    assert 'value="1.0000"' in bar
    assert "finished at step 120" in bar
    assert any(page.startswith("<iframe srcdoc=") for page in pages)  # the trace
    assert len(outputs(done, "image/png")) == 2  # the curve and the attention weights
    streams = [o.text for cell in done.cells for o in cell.get("outputs", ()) if "text" in o]
    assert any(text.startswith("The ") for text in streams)
