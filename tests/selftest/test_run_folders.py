"""G20 in a small dose, and that it can fail; tests/reliability/test_hostile.py has more."""

import pytest

from clearformer.selftest import run_folders
from clearformer.selftest.processes import Missed


def test_g20_links_in_run_folder_are_not_followed(tmp_path):
    said = run_folders.links(tmp_path, names=run_folders.FILES[:1])
    assert said == "2 links in place of 1 files: nothing elsewhere changed"


def test_g20_fails_if_link_is_followed(tmp_path, monkeypatch):
    class Trusting:
        def __init__(self, place, steps):
            self.place = place

        def finish(self, folder):
            (folder / "checkpoints/step-2").mkdir(parents=True)
            (folder / "lock").touch()

        def start(self, folder):
            (folder / "lock").write_text("mine")
            return self

        def wait(self):
            return 0

        def output(self):
            return ""

    monkeypatch.setattr(run_folders, "ToyRun", Trusting)
    with pytest.raises(Missed, match="a symbolic link as lock: a file elsewhere changed"):
        run_folders.links(tmp_path, names=["lock"])
