"""`clearformer embed`: to the terminal, as JSON, and to files."""

import json

import numpy as np
import pytest

from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.hub.importing import Imported
from clearformer.hub.write_run import write_run
from clearformer.text import Bytes


@pytest.fixture
def run(small, scrambled, tmp_path):
    config = small("gpt2", vocabulary=256, name="gpt2-x")
    tensors = {n: p.detach() for n, p in scrambled(build(config)).named_parameters()}
    return write_run(
        Imported("here", config, GenerationDefaults(), Bytes(), tensors, ()), tmp_path / "run"
    )


def test_prints_vectors_and_similarities(clearformer, run):
    done = clearformer("embed", str(run), "one", "two", "one")
    assert done.code == 0, done.err
    assert "'two'" in done.out
    rows = done.out.split("cosine similarity:\n")[1].splitlines()
    assert rows[0].split()[1] == rows[0].split()[3] == "+1.00"


def test_json_and_files_agree(clearformer, run, tmp_path):
    lines = clearformer("embed", str(run), "one", "two", "--json").out.splitlines()
    spoken = [json.loads(line) for line in lines]
    assert [line["text"] for line in spoken] == ["one", "two"]
    (tmp_path / "texts.txt").write_text("one\ntwo\n")
    for name in ("x.npy", "x.jsonl"):
        out = tmp_path / name
        done = clearformer(
            "embed", str(run), "--file", str(tmp_path / "texts.txt"), "--out", str(out)
        )
        assert done.out.startswith("2 vectors of 16: ")
    stored = np.load(tmp_path / "x.npy")
    np.testing.assert_allclose(stored, [line["embedding"] for line in spoken], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1.0, rtol=1e-5)
    assert (tmp_path / "x.jsonl").read_text().splitlines() == lines


def test_reports_truncated_texts(clearformer, run):
    done = clearformer("embed", str(run), "a text of more than twelve bytes", "b", "--json")
    assert done.err == "note: texts longer than 12 tokens were cut to that length: 1 of 2\n"
    assert clearformer("embed", str(run), "a", "b").err == ""


def test_errors_are_one_line(clearformer, run, tmp_path):
    assert clearformer("embed", str(run)).complaint.startswith("there is no text: give texts, ")
    both = clearformer("embed", str(run), "x", "--file", "y").complaint
    assert both == "give either texts or --file, and not both"
    wrong = clearformer("embed", str(run), "x", "--out", str(tmp_path / "x.csv")).complaint
    assert wrong.endswith("must end in .npy, .jsonl or .json")
    both = clearformer("embed", str(run), "x", "--json", "--out", str(tmp_path / "x.npy")).complaint
    assert both == "give either --json or --out, and not both"
    assert "text 1 is empty" in clearformer("embed", str(run), "").complaint
    missing = clearformer("embed", str(tmp_path / "x"), "a").complaint
    assert missing.startswith(f"there is no folder or file {tmp_path / 'x'}: give a run")
