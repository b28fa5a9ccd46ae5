"""The pytest plugin, in an empty project."""

import subprocess
import sys

WRONG = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.factor = scale

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.o((q @ k.transpose(1, 2) * self.factor).softmax(-1) @ v)

def test_right(verify):
    assert verify(Attention(0.25)).findings == ()

def test_wrong(verify):
    verify(Attention(1.0))
"""


def test_failing_report_fails_test(tmp_path):
    (tmp_path / "test_mine.py").write_text(WRONG)
    words = ["-m", "pytest", "-q", "test_mine.py"]  # the plugin is found by its entry point
    outcome = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 1, outcome.stderr
    assert "1 failed, 1 passed" in outcome.stdout
    assert "scale-missing" in outcome.stdout
    assert "test_mine.py:13" in outcome.stdout


def test_plugin_is_registered_as_entry_point():
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {
        "clearformer": "clearformer.verification.pytest_plugin"
    }
