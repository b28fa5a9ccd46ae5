"""SIGKILL while a file is compressed or decompressed leaves the whole file or none."""

import json
import os
import subprocess
import sys

import pytest

# A process forks one child for each moment, because importing torch takes longer than all of them.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import torch
import clearformer as cf

torch.set_num_threads(1)
folder = Path(sys.argv[1])
model, text = cf.load(folder / "run"), (folder / "text").read_bytes()
packed = cf.compress(text, model, streams=2).data
rename = os.replace


def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def at(share):
    return lambda done, total: done >= share * total and die()


def after(*arguments):
    rename(*arguments)
    die()


def work(verb, out, **options):
    if verb == "compress":
        cf.compress(text, model, streams=2, out=out, **options)
    else:
        cf.decompress(packed, model, out=out, **options)


MOMENTS = {
    "first token": lambda verb, out: work(verb, out, progress=at(0)),
    "half": lambda verb, out: work(verb, out, progress=at(0.5)),
    "last token": lambda verb, out: work(verb, out, progress=at(1)),
    "written": lambda verb, out: (setattr(os, "fsync", die), work(verb, out)),
    "synced": lambda verb, out: (setattr(os, "replace", die), work(verb, out)),
    "renamed": lambda verb, out: (setattr(os, "replace", after), work(verb, out)),
}
found = {}
for verb, expected in (("compress", packed), ("decompress", text)):
    for moment, run in MOMENTS.items():
        out = folder / f"{verb} {moment}"
        child = os.fork()
        if not child:
            try:
                run(verb, out)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        state = "none" if not out.exists() else out.read_bytes() == expected
        found[f"{verb}, {moment}"] = [os.waitstatus_to_exitcode(status), state]
        out.unlink(missing_ok=True)
        work(verb, out)  # what the killed process left does not matter
        assert out.read_bytes() == expected
print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_leaves_the_whole_file_or_none(byte_model, text, tmp_path):
    byte_model().save(tmp_path / "run")
    (tmp_path / "text").write_bytes(text[:100])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 12
    for moment, (code, state) in found.items():
        assert code == -9, moment
        assert state == (True if moment.endswith("renamed") else "none"), moment
