"""`clearformer selftest`: check the reliability goals on this machine, in about five minutes."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

from clearformer.cli.output import say, write_json


@dataclass(frozen=True)
class Selftest:
    """Check reliability here: kill runs, damage checkpoints, open malicious files."""

    only: str | None = None
    """Goals by number, as in G1,G5; default: all."""
    json: bool = False
    """Print one line of JSON for each goal."""
    full: bool = False
    """The long version, about an hour: 200 kills, 500 damaged files, 147,300 fuzzed ones."""

    def run(self) -> None:
        from clearformer.selftest.goals import attempts, chosen

        names = chosen(self.only)
        outcomes = {"reached": 0, "missed": 0, "skipped": 0}
        total = 0.0
        for result in attempts(names, "soak" if self.full else "selftest"):
            outcomes[result.outcome] += 1
            total += result.seconds
            if self.json:
                write_json(asdict(result))
                continue
            line = f"{result.goal:4} {result.name:16} {result.outcome:8} {result.seconds:6.1f} s"
            say(f"{line}  {result.found}", flush=True)
        if not self.json:
            counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
            say(f"{counted}; {total / 60:.1f} minutes")
        sys.exit(1 if outcomes["missed"] else 0)
