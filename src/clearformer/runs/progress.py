"""Progress of a run: a live line in a terminal or a notebook, plain lines elsewhere, or JSON."""

from __future__ import annotations

import html
import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clearformer import console
from clearformer.escape import escape_line
from clearformer.runs.remarks import remarks

if TYPE_CHECKING:
    from clearformer.runs.run import Run
    from clearformer.training.events import Ended, Event, Step

PLAIN_SECONDS = 5.0  # between two plain lines
NOTEBOOK_SECONDS = 0.25  # between two updates of a notebook's output
RECENT_SECONDS, RECENT_STEPS = 60.0, 20  # window of the throughput: the longer of the two


def reporter(quiet: bool, json: bool) -> Reporter:
    """The reporter for where the output goes."""
    if json:
        return JsonLines()
    if quiet:
        return Reporter()
    if in_notebook():
        return Notebook()
    if sys.stdout.isatty() and not os.environ.get("CI"):
        return Live()
    return Plain()


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, whose output can be updated."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class Reporter:
    """Prints the result and nothing else; the others print more."""

    def say(self, sentence: str) -> None:
        console.tell(f"clearformer: {sentence}")

    def start(self, run: Run) -> None:
        self.figure, self.counted = run.task.metric, run.task.counted
        minutes = run.config.train.minutes
        self.throughput = Throughput(None if minutes is None else 60 * minutes)
        for note in run.task.notes:
            self.say(f"note: {note}")

    def event(self, event: Event) -> None:
        pass

    def show(self, *lines: str) -> None:
        for line in lines:
            console.say(line, flush=True)

    def samples(self, step: int, ids: list[int]) -> None:
        self.show(f"step {step}: samples {' '.join(map(str, ids))}")

    def close(self) -> None:
        pass

    def end(self, run: Run) -> None:
        if run.state.empty:
            self.say(f"note: {run.state.empty:,} steps had no target and changed nothing")
        for remark in remarks(run):
            self.say(f"note: {remark}")
        if run.state.best is not None:
            console.say(f"{run.folder}: {result(run)}")
        if run.baseline is not None:
            console.say(f"for comparison: {run.baseline}")


class Silent(Reporter):
    """Prints nothing: of several processes, the main one alone reports."""

    def say(self, sentence: str) -> None:
        pass

    def end(self, run: Run) -> None:
        pass


class Notes(Reporter):
    """Prints notes and nothing else: the events are handled by the caller."""

    def end(self, run: Run) -> None:
        pass


class JsonLines(Reporter):
    """Every event as a line of JSON; steps and evaluations as in `metrics.jsonl`."""

    def start(self, run: Run) -> None:
        from clearformer.runs.metrics import start_row

        super().start(run)
        self.write(start_row(self.counted, self.figure))

    def event(self, event: Event) -> None:
        from clearformer.runs.metrics import evaluation_row, step_row
        from clearformer.training.events import Evaluation, Step

        match event:
            case Step():
                self.write(step_row(event, self.counted))
            case Evaluation():
                self.write({**evaluation_row(event), "sample": event.sample})
            case _:
                fields = {k: str(v) if k == "folder" else v for k, v in vars(event).items()}
                self.write({"event": type(event).__name__.lower(), **fields})

    def write(self, row: Mapping[str, Any]) -> None:
        from clearformer.runs.metrics import json_row

        console.write_json(json_row(row))

    def samples(self, step: int, ids: list[int]) -> None:
        self.write({"event": "samples", "step": step, "ids": ids})

    def end(self, run: Run) -> None:
        for remark in remarks(run):
            self.write({"event": "note", "text": remark})
        if run.baseline is not None:
            self.write({"event": "baseline", "text": run.baseline})


class Plain(Reporter):
    """A line every few seconds, without control characters."""

    def start(self, run: Run) -> None:
        super().start(run)
        self.last = 0.0
        for line in summary(run):
            console.say(line)
        sys.stdout.flush()

    def event(self, event: Event) -> None:
        from clearformer.training.events import Ended, Evaluation, Skipped, Step

        match event:
            case Skipped():
                self.say(skipped_line(event))
            case Step():
                self.throughput.add(event)
                self.step(event)
            case Evaluation():
                self.show(*evaluation_lines(event))
            case Ended():
                self.ended(event)

    def step(self, event: Step) -> None:
        if time.monotonic() - self.last > PLAIN_SECONDS:
            self.last = time.monotonic()
            self.show(self.line(event))

    def ended(self, event: Ended) -> None:
        self.show(f"{event.reason} at step {event.step}")

    def line(self, event: Any) -> str:
        shown = f"step {event.step}: loss {event.loss:.4f}"
        rate = self.throughput.rate()
        if rate:
            remaining = clock(self.throughput.remaining())
            shown += f", {rate:,.{rate < 10:d}f} {self.counted}/s, {remaining} left"
        return shown


class Throughput:
    """Recent throughput of a run and its remaining time.

    `budget` is in seconds, for a run that ends by the clock.
    """

    def __init__(self, budget: float | None = None) -> None:
        self.budget = budget
        self.marks: deque[tuple[float, int, float]] = deque()  # seconds, tokens, progress

    def add(self, event: Any) -> None:
        self.marks.append((event.seconds, event.tokens, event.progress))
        while (
            len(self.marks) > RECENT_STEPS + 1 and event.seconds - self.marks[1][0] > RECENT_SECONDS
        ):
            self.marks.popleft()

    def rate(self) -> float:
        """Tokens per second; 0 while it is unknown."""
        (began, first, _), (now, tokens, _) = self.marks[0], self.marks[-1]
        return (tokens - first) / (now - began) if now > began else 0.0

    def remaining(self) -> float:
        """Seconds until the end, by the clock or by the steps that remain."""
        if self.budget is not None:
            return max(self.budget - self.marks[-1][0], 0.0)
        (began, _, before), (now, _, progress) = self.marks[0], self.marks[-1]
        return max(1 - progress, 0.0) * (now - began) / max(progress - before, 1e-9)


class Live(Plain):
    """A live progress bar, with evaluations above it."""

    def start(self, run: Run) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        from clearformer.rich_console import Terminal

        super().start(run)
        self.terminal = Terminal()
        numbers = TextColumn("{task.percentage:3.0f}%  {task.description}", markup=False)
        self.bar = Progress(BarColumn(bar_width=30), numbers, console=self.terminal)
        self.bar.start()
        self.row = self.bar.add_task("starting", total=1.0)

    def step(self, event: Step) -> None:
        completed = min(event.progress, 1.0)
        self.bar.update(self.row, completed=completed, description=self.line(event))

    def ended(self, event: Ended) -> None:
        pass

    def show(self, *lines: str) -> None:
        for line in lines:
            self.terminal.say(line)

    def say(self, sentence: str) -> None:
        if hasattr(self, "bar"):
            self.terminal.say(sentence)
        else:
            super().say(sentence)

    def close(self) -> None:
        if hasattr(self, "bar"):
            self.bar.stop()


class Notebook(Plain):
    """A progress bar and the evaluations, in one output of a notebook's cell."""

    handle: Any = None
    progress = 0.0
    status = "starting"

    def start(self, run: Run) -> None:
        from IPython.display import display

        Reporter.start(self, run)
        self.last = 0.0
        self.lines = summary(run)
        self.handle = display(self._bundle(), raw=True, display_id=True)

    def step(self, event: Step) -> None:
        self.progress, self.status = min(event.progress, 1.0), self.line(event)
        if time.monotonic() - self.last > NOTEBOOK_SECONDS:
            self._update()

    def ended(self, event: Ended) -> None:
        self.progress = 1.0 if event.reason == "finished" else self.progress
        self.status = f"{event.reason} at step {event.step}"
        self._update()

    def show(self, *lines: str) -> None:
        self.lines += lines
        self._update()

    def say(self, sentence: str) -> None:
        if self.handle is None:
            super().say(sentence)
        else:
            self.show(sentence)

    def end(self, run: Run) -> None:
        self.show(*(f"note: {remark}" for remark in remarks(run)))
        if run.state.best is not None:
            self.show(f"{run.folder}: {result(run)}")
        if run.baseline is not None:
            self.show(f"for comparison: {run.baseline}")

    def _update(self) -> None:
        self.last = time.monotonic()
        self.handle.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        """The output as HTML, and as plain text."""
        lines = [escape_line(line) for line in (*self.lines, self.status)]
        *above, status = map(html.escape, lines)
        shown = "\n".join(above)
        bar = f'<progress value="{self.progress:.4f}" max="1" style="width:20em"></progress>'
        style = "white-space:pre-wrap;margin:0"
        page = f'<pre style="{style}">{shown}</pre>{bar} <code>{status}</code>'
        return {"text/html": page, "text/plain": "\n".join(lines)}


def summary(run: Run) -> list[str]:
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    train = run.config.train
    budget = f"{train.minutes:g} minutes" if train.minutes else f"{run.total_steps:,} steps"
    verb = f"continuing at step {run.state.step}" if run.resumed else "training"
    learn = sum(each.numel() for each in run.model.parameters() if each.requires_grad)
    learning = "" if learn == parameters else f", of which {learn:,} learn"
    return [
        f"{verb}: {run.config.model.name}, {parameters:,} parameters{learning}, on "
        f"{run.config.data.source} ({run.task.steps_per_epoch:,} steps an epoch), {budget}, "
        f"into {run.folder}"
    ]


def result(run: Run) -> str:
    """The metric of the checkpoint that every command will use, and how it was computed."""
    now, selected = run.state, run.selected
    assert now.best is not None
    last = selected.step != now.best["step"] and now.last is not None
    value = now.last["value"] if last and now.last else now.best["value"]
    weights = "averaged weights (train.ema_decay)" if now.ema is not None else "weights as trained"
    protocol = f"; {run.protocol}" if run.protocol else ""
    return (
        f"validation {run.task.metric.replace('_', ' ')} {value:.4f} at step {selected.step}, "
        f"{selected.why} ({weights}{protocol})"
    )


def skipped_line(event: Any) -> str:
    return (
        f"note: step {event.step} overflowed float16 and was skipped ({event.skipped} so far); "
        f"the loss scale is now {event.scale:g}"
    )


def evaluation_lines(event: Any) -> list[str]:
    figures = ", ".join(f"{name.replace('_', ' ')} {v:.4f}" for name, v in event.figures.items())
    line = f"step {event.step}: validation {figures}{'  (best)' if event.best else ''}"
    if event.sample is None:
        return [line]
    return [line, f"    {' '.join(event.sample.split())[:100]}"]


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
