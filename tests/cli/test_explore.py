"""`clearformer explore`: address, models, and rejected arguments."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from clearformer.cli import explore
from clearformer.explore import static_site


@pytest.fixture
def served(monkeypatch):
    """Replaces the server by a no-op."""
    from clearformer.explore.server import Server

    made = []
    monkeypatch.setattr(Server, "serve_here", lambda server: made.append(server))
    monkeypatch.setattr("clearformer.explore.library.Library.warm", lambda library: None)
    yield made
    for server in made:
        server.socket.close()


def test_server_answers_and_stops_on_ctrl_c(tmp_path):
    (tmp_path / "runs").mkdir()
    command = [sys.executable, "-m", "clearformer", "explore", str(tmp_path), "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            line = running.stdout.readline()
            place = re.search(r"http://(127\.0\.0\.1:\d+)/", line)[1]
            connection = http.client.HTTPConnection(place, timeout=300)
            connection.request("GET", "/api/models")  # immediately: the printed address is valid
            assert json.loads(connection.getresponse().read()) == []
            connection.close()
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=300)
        finally:
            running.kill()
    assert running.returncode == 0, err
    assert line.startswith("explore 0 models at http://127.0.0.1:")
    assert "Traceback" not in err
    assert "there is no model yet" in err


def test_finds_runs_in_working_directory(clearformer, served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "mine"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    done = clearformer("explore", "--no-browser")
    assert done.code == 0, done.err
    assert "note: mine cannot be opened: " in done.err
    assert done.out.startswith("explore 0 models at ")


def test_trains_small_model_if_no_run_exists(clearformer, served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = explore.first_config()
    assert (config.data.source, config.train.steps) == ("python-docs", 250)
    tiny = replace(
        config,
        model=replace(config.model, layers=1, width=8, heads=2, hidden=8),
        data=replace(config.data, tokenizer="bytes", vocabulary=None),
        train=replace(config.train, steps=2, evaluations=1, device="cpu"),
    )
    monkeypatch.setattr(explore, "first_config", lambda: tiny)
    done = clearformer("explore", "--no-browser")
    assert done.code == 0, done.err
    assert "a small model is trained on Python's documentation" in done.out
    assert "step 2 of 250: loss" in done.out
    assert "explore 1 model at " in done.out
    again = clearformer("explore", "--no-browser")
    assert "trained" not in again.out
    assert "explore 1 model at " in again.out


def test_uses_other_port_if_taken_and_adds_token_to_address(clearformer, served, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        token = "a token with spaces & more"
        done = clearformer(
            "explore", str(tmp_path), "--no-browser", "--port", str(port), "--token", token
        )
    assert done.code == 0, done.err
    assert f"note: port {port} is taken" in done.err
    assert "/?token=a%20token%20with%20spaces%20%26%20more" in done.out
    (server,) = served
    assert server.port != port


def test_opens_a_step_of_the_course(clearformer, served, tmp_path):
    token = "a token with spaces & more"
    done = clearformer(
        "explore", str(tmp_path), "--no-browser", "--open", "heads", "--token", token
    )
    assert done.code == 0, done.err
    assert "/?token=a%20token%20with%20spaces%20%26%20more#step=heads (" in done.out


def test_static_copy_has_every_text(clearformer, tmp_path, monkeypatch):
    given = []

    def write(folder, models, text, **settings):
        given.extend(text)
        return static_site.Site(folder, files=1, bytes=1, answers=1)

    monkeypatch.setattr(static_site, "write", write)
    texts = ["--text", "The cat sat", "--text", "A dog ran"]
    done = clearformer("explore", "--static", str(tmp_path / "course"), *texts, str(tmp_path))
    assert done.code == 0, done.err
    assert given == ["The cat sat", "A dog ran"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--open", "head s"], "there is no step 'head s' in the course: did you mean 'heads'?"),
        (["nowhere"], "there is no folder nowhere: give a run, or leave it out"),
        (["--host", "0.0.0.0"], "host is 0.0.0.0, which other machines can reach: add --token"),
        (["--token", "short"], "the token has 5 characters, but it must have at least 16"),
        (["--max-tokens", "2000"], "max-tokens is 2000, but it must be from 1 to 1,024"),
        (["--port", "99999"], "port is 99999, but it must be from 0 to 65535"),
        (["--port", "x"], "--port"),
    ],
)
def test_errors_are_one_line(clearformer, flags, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sentence in clearformer("explore", "--no-browser", *flags).complaint


def test_rejects_file_that_is_not_a_model(clearformer, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    said = clearformer("explore", str(tmp_path / "a.txt"), "--no-browser").complaint
    assert "is not a folder: give a run, a folder of runs, or of weights" in said


def test_no_browser_without_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if sys.platform == "linux":
        assert not explore._has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert explore._has_screen()
    assert os.environ["DISPLAY"] == ":0"


@pytest.fixture
def pickled(tmp_path, monkeypatch):
    """A folder whose only weights are a pickle, which must not be opened."""
    folder = tmp_path / "models" / "old"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}.")
    monkeypatch.setattr("clearformer.hub.importing.PickleFile", None)
    return folder


def test_pickle_is_reported_and_not_opened(clearformer, served, pickled):
    done = clearformer("explore", str(pickled.parent), "--no-browser")
    assert done.code == 0, done.err
    assert "note: old cannot be opened: " in done.err
    assert "is a pickle, a format that can carry code: add --allow-bin" in done.err
    assert done.out.startswith("explore 0 models at ")


def test_allow_bin_opens_pickle(clearformer, served, pickled, monkeypatch):
    opened = []

    def noted(path):
        opened.append(path.name)
        raise ValueError("opened")

    monkeypatch.setattr("clearformer.hub.importing.PickleFile", noted)
    done = clearformer("explore", str(pickled), "--no-browser", "--allow-bin")
    assert "note: old cannot be opened: opened" in done.err
    assert opened == ["pytorch_model.bin"]


@pytest.mark.parametrize(
    "words",
    [
        "generate {} a", "embed {} a", "classify {} a", "fill {} a", "translate {} a",
        "evaluate {}", "average {} --out {}-new", "export {} --out {}-new", "describe {}",
        "plan {}", "train --from {} --out {}-new", "import {} --out {}-new",
        "import {}/pytorch_model.bin --out {}-new", "explore {}/pytorch_model.bin",
    ],
)  # fmt: skip
def test_other_commands_reject_pickle(clearformer, pickled, words):
    done = clearformer(*(each.format(pickled) for each in words.split()))
    assert done.code == 2
    assert str(pickled) in done.err
    assert "Traceback" not in done.err


def test_ipv6_address_is_in_brackets():
    assert explore.Explore(host="::1")._address(80) == "http://[::1]:80/"
    assert explore.Explore(host="::")._address(80) == "http://[::1]:80/"
    assert explore.Explore(host="0.0.0.0")._address(80) == "http://127.0.0.1:80/"
