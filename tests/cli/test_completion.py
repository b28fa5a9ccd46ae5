"""The shell completion script: complete, and valid for its shell."""

import shutil
import subprocess

import pytest

from clearformer.cli.main import VERBS


def test_script_contains_commands_and_flags(clearformer):
    outcome = clearformer("completion", "bash")
    assert outcome.code == 0
    for word in (*VERBS, "--max-tokens", "--minutes"):
        assert word in outcome.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_script_is_valid_bash(clearformer, tmp_path):
    script = tmp_path / "completion.sh"
    script.write_text(clearformer("completion", "bash").out)
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
