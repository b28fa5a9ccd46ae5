"""Custom parts from outside the package: the code of docs/extending.md, executed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/extending.md").read_text()
FILES = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE, re.M | re.S))
LOGITS = "\nprint('logits', logits.double().flatten().tolist()[:50])\n"


def python(folder, *arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder after a few steps of training."""
    folder = tmp_path_factory.mktemp("user")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "text.txt").write_text("the cat sat on the mat, and the dog sat on the log.\n" * 100)
    # The logits before the process ends, of the checkpoint that a reader would open.
    opened = FILES["open_mine.py"].replace("import mine  # noqa: F401\n", "")
    (folder / "train_mine.py").write_text(FILES["train_mine.py"] + opened + LOGITS)
    outcome = python(folder, "train_mine.py")
    assert outcome.returncode == 0, outcome.stderr
    (folder / "trained.txt").write_text(outcome.stdout)
    return folder


def logits(text):
    (line,) = (line for line in text.splitlines() if line.startswith("logits "))
    return json.loads(line.removeprefix("logits "))


def test_config_contains_custom_classes_and_values(folder):
    (config,) = {path.read_text() for path in folder.glob("run/config.json")}
    model = json.loads(config)["model"]
    assert model["patterns"][0]["second"] == {"kind": "Dilated", "near": 3, "step": 4}
    assert model["position"] == {"kind": "LearnedDistance", "farthest": 5}
    assert model["activation"] == {"kind": "Swish", "beta": 1.5}
    assert model["norm"] == {"kind": "Unscaled", "epsilon": 1e-6}


def test_other_process_opens_run_with_same_logits(folder):
    (folder / "again.py").write_text(FILES["open_mine.py"] + LOGITS)
    outcome = python(folder, "again.py")
    assert outcome.returncode == 0, outcome.stderr
    assert "Dilated(near=3, step=4)" in outcome.stdout
    assert "Swish(beta=1.5)" in outcome.stdout
    assert logits(outcome.stdout) == logits((folder / "trained.txt").read_text())


def test_rejects_run_without_import_with_advice(folder):
    outcome = python(folder, "-c", FILES["open_mine.py"].replace("import mine", "import sys"))
    assert outcome.returncode != 0
    (sentence,) = re.findall(r"^```text\n(.*)\n```$", PAGE, re.M)
    assert outcome.stderr.strip().splitlines()[-1] == f"ValueError: {sentence}"
