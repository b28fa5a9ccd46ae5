"""How a run is shown."""

from types import SimpleNamespace

from clearformer.cli.progress import JsonLines, Live, Plain, Reporter, clock, reporter
from clearformer.train.events import Evaluation


def test_times_read_as_a_clock():
    assert [clock(s) for s in (0, 59.6, 61, 3600, 7325)] == [
        "0:00", "1:00", "1:01", "1:00:00", "2:02:05",
    ]  # fmt: skip


def test_the_way_of_showing_follows_from_where_it_is_shown(monkeypatch):
    assert type(reporter(quiet=False, json=True)) is JsonLines
    assert type(reporter(quiet=True, json=False)) is Reporter
    assert type(reporter(quiet=False, json=False)) is Plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("CI", "true")
    assert type(reporter(quiet=False, json=False)) is Plain
    monkeypatch.delenv("CI")
    assert type(reporter(quiet=False, json=False)) is Live


def test_a_sample_cannot_command_the_terminal(monkeypatch, capsys):
    """In the beginning a model writes anything: rich's markup, escape sequences."""
    monkeypatch.setattr("clearformer.cli.progress.summary", lambda run: ["training"])
    live = Live()
    live.start(SimpleNamespace(task=SimpleNamespace(notes=(), figure="loss", counted="tokens")))
    live.event(Evaluation(3, {"loss": 1.0}, True, "[/b] [red]x\x1b[2J"))
    live.close()
    shown = capsys.readouterr().out
    assert "[/b] [red]x\ufffd[2J" in shown
