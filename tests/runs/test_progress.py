"""Progress display of a run."""

from types import SimpleNamespace

from clearformer.runs.progress import JsonLines, Live, Plain, Reporter, Throughput, clock, reporter
from clearformer.training.events import Evaluation, Step


def test_clock_formats_seconds():
    assert [clock(s) for s in (0, 59.6, 61, 3600, 7325)] == [
        "0:00", "1:00", "1:01", "1:00:00", "2:02:05",
    ]  # fmt: skip


def test_reporter_depends_on_terminal(monkeypatch):
    assert type(reporter(quiet=False, json=True)) is JsonLines
    assert type(reporter(quiet=True, json=False)) is Reporter
    assert type(reporter(quiet=False, json=False)) is Plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("CI", "true")
    assert type(reporter(quiet=False, json=False)) is Plain
    monkeypatch.delenv("CI")
    assert type(reporter(quiet=False, json=False)) is Live


def a_run(minutes=None, counted="tokens"):
    task = SimpleNamespace(notes=(), metric="loss", counted=counted)
    train = SimpleNamespace(minutes=minutes)
    return SimpleNamespace(task=task, config=SimpleNamespace(train=train))


def test_sample_text_is_escaped(monkeypatch, capsys):
    """An untrained model generates anything: rich's markup, escape sequences."""
    monkeypatch.setattr("clearformer.runs.progress.summary", lambda run: ["training"])
    live = Live()
    live.start(a_run())
    live.event(Evaluation(3, {"loss": 1.0}, True, "[/b] [red]x\x1b[2J"))
    live.close()
    shown = capsys.readouterr().out
    assert "[/b] [red]x\\x1b[2J" in shown


def steps(pace, first, count, seconds, began=0.0):
    for number in range(first, first + count):
        began += seconds
        pace.add(Step(number, 1.0, 0.1, 1.0, 10 * number, began, number / 1000))
    return began


def test_throughput_forgets_pause():
    pace = Throughput()
    steps(pace, 1, 1, 1.0)
    assert pace.rate() == 0  # unknown after a single step
    now = steps(pace, 2, 99, 1.0, 1.0)
    assert abs(pace.rate() - 10) < 1e-6
    assert abs(pace.remaining() - 900) < 1e-6
    now = steps(pace, 101, 1, 3600.0, now)
    assert pace.remaining() > 10_000
    steps(pace, 102, 99, 1.0, now)
    assert abs(pace.rate() - 10) < 1e-6
    assert abs(pace.remaining() - 800) < 1e-6


def test_throughput_averages_slow_steps():
    pace = Throughput()
    now = 0.0
    for number in range(1, 41):
        now = steps(pace, number, 1, 100.0 if number % 2 else 300.0, now)
    assert abs(pace.rate() - 10 / 200) < 1e-6


def test_remaining_time_never_exceeds_minutes_budget():
    """On a machine short of memory, steps take longer and longer."""
    pace, now = Throughput(budget=2400.0), 0.0
    for number in range(1, 60):
        before, now = now, now + number**1.2
        # Progress is that at the start of the step.
        pace.add(Step(number, 1.0, 0.1, 1.0, 10 * number, now, before / 2400))
        assert pace.remaining() == max(2400.0 - now, 0.0)


def test_progress_line_shows_minutes_budget(monkeypatch, capsys):
    monkeypatch.setattr("clearformer.runs.progress.summary", lambda run: ["training"])
    plain = Plain()
    plain.start(a_run(minutes=40))
    for number, seconds, began in ((1, 60.0, 0.0), (2, 1140.0, 60.0)):
        plain.last = -1e9  # show every line
        plain.event(Step(number, 1.0, 0.1, 1.0, 100 * number, seconds, began / 2400))
    assert capsys.readouterr().out.splitlines()[-1].endswith("21:00 left")
