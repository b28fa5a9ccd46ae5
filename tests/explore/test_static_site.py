"""The course as files: what they hold, and what they never overwrite."""

import json
import re

import pytest

from clearformer.cli.explore import Explore
from clearformer.explore import export, static_requests, static_site

POLICY = re.compile(r'Content-Security-Policy" content="([^"]+)"')


@pytest.fixture(scope="module")
def site(tiny, tiny_runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("static") / "course"
    told = []
    evil = "the cat </script><img src=x> sat"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_requests, "MAX_PROJECTIONS", 100)  # fewer answers, the same kinds
        done = static_site.write(
            folder,
            [tiny_runs / "generator"],
            text=["the cat sat", evil],
            progress=lambda *each: told.append(each),
        )
    return folder, done, told


def answers(folder):
    """Key of a request -> answer, as the page finds them."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    index = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1])["site"]
    files = {}
    for path in (folder / "data").iterdir():
        call = re.fullmatch(r"clearformerAnswers\((\d+), (.*)\);\n", path.read_text(), re.DOTALL)
        assert path.name == f"{call[1]}.js"
        files[int(call[1])] = json.loads(call[2])
    return {key: files[n][key] for key, n in index["index"].items()}, index["texts"]


def test_files_answer_what_index_lists(site):
    folder, done, told = site
    found, texts = answers(folder)
    assert len(found) == done.answers
    assert texts == ["the cat sat", "the cat </script><img src=x> sat"]
    [model] = found["GET /api/models"]
    assert (model["id"], model["sample"]) == ("generator", texts[0])
    base = {"model": "generator", "checkpoint": model["default_checkpoint"], "text": texts[1]}
    trace = found[f"POST /api/traces {static_site.canonical(base)}"]
    head = found[f"GET /api/traces/{trace['id']}/head?head=1&layer=1&part=self"]
    assert head["weights"]["shape"] == [len(trace["tokens"])] * 2
    assert found["GET /api/info"]["problems"] == {}  # they may name folders of this machine
    sizes = [each.stat().st_size for each in folder.rglob("*") if each.is_file()]
    assert (done.files, done.bytes) == (len(sizes), sum(sizes))
    assert told[-1][:2] == ("generator", done.answers)


def test_files_contact_nobody_and_escape_names(site):
    folder, _, _ = site
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert POLICY.search(page)[1] == static_site.CSP
    assert "default-src 'none'" in static_site.CSP
    assert "unsafe-inline" not in static_site.CSP.split("style-src")[0]
    # As strict as a saved file, but for scripts beside the page in place of inline ones.
    assert static_site.CSP.replace("'self'", "'unsafe-inline'") == export.CSP
    for path in (folder / "index.html", *(folder / "data").iterdir()):
        assert "<img" not in path.read_text(encoding="utf-8").split("<body>")[-1]


def test_own_folder_is_replaced_and_others_are_kept(site, tmp_path):
    folder, _, _ = site
    static_site.require_own(folder)
    static_site.require_own(tmp_path)
    static_site.require_own(tmp_path / "new")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files, such as notes\.txt: give a new"):
        static_site.write(tmp_path, [])
    (tmp_path / static_site.MANIFEST).write_text('{"files": ["index.html"]}')
    with pytest.raises(ValueError, match="holds other files"):
        static_site.require_own(tmp_path)
    with pytest.raises(ValueError, match="is a file: give the name of a new folder"):
        static_site.require_own(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="there is no folder"):
        static_site.require_own(tmp_path / "a" / "b")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_nothing_is_left_of_a_failure(tiny_runs, tmp_path):
    run = tiny_runs / "generator"
    with pytest.raises(ValueError, match="generator cannot read the text 'aaa"):
        static_site.write(tmp_path / "site", [run], text=["a" * 500])
    with pytest.raises(ValueError, match="text is empty"):
        static_site.write(tmp_path / "site", [run], text=[" "])
    with pytest.raises(ValueError, match="there is no model in"):
        static_site.write(tmp_path / "site", [tmp_path])
    assert list(tmp_path.iterdir()) == []


def test_text_belongs_to_static():
    with pytest.raises(ValueError, match="--text is for --static"):
        Explore(text=("a",)).run()


def test_request_names_are_those_of_the_page():
    body = {"text": "é", "mask": "model", "positions": True, "a": None, "b": {"y": 1, "x": 2}}
    assert static_site.canonical(body) == '{"b":{"x":2,"y":1},"text":"é"}'
    assert static_site.canonical({"mask": "none", "positions": False}) == (
        '{"mask":"none","positions":false}'
    )
