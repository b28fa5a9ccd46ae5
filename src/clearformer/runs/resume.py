"""Settings that a resumed run may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clearformer.config import RunConfig, TrainConfig, run_from_json, to_json
from clearformer.runs import metrics
from clearformer.runs.exit_codes import NON_FINITE
from clearformer.table_options import TableOptions
from clearformer.training.step import NonFiniteError

# Length, evaluations, saving. The path of the data may change too: its hash must not.
CHANGEABLE = {
    "train.steps",
    "train.epochs",
    "train.minutes",
    "train.schedule.final",
    "train.evaluations",
    "train.patience",
    "train.save_seconds",
    "train.keep_checkpoints",
    "train.log_checkpoints",
    "train.parallel",
    "train.timeout_seconds",
    "train.recompute",  # the same numbers, bit for bit
    "data.source",
    "data.validation",
}
# Settings that were taken from the data; they are in the saved config.
FROM_DATA = {
    "model": ("vocabulary", "head"),
    "generation": ("start_id", "end_ids", "typical_source_ids", "typical_target_ids"),
}


def continued(
    saved: RunConfig, asked: RunConfig, say: Callable[[str], None] = lambda sentence: None
) -> RunConfig:
    """The saved config with the allowed changes of the asked one; else ValueError."""
    old, new = to_json(saved), to_json(asked)
    for part, keys in FROM_DATA.items():
        new[part] |= {key: old[part][key] for key in keys}
    if new["train"]["decay_start"] == TrainConfig.decay_start:
        # The default, which was another one when the run was started.
        new["train"]["decay_start"] = old["train"]["decay_start"]
    if new["data"]["table"] == to_json(TableOptions()):
        new["data"]["table"] = old["data"]["table"]  # likewise
    wrong, notes = [], []
    for path, before, now in differences(old, new):
        if path in CHANGEABLE:
            notes.append(f"note: {path} was {before} and is {now} from now on")
        elif not path.startswith("origin"):
            wrong.append(f"{path} ({before} before, {now} now)")
    before, now = (each.origin and each.origin.sha256[:12] for each in (saved, asked))
    if before != now:
        wrong.append(f"origin ({before} before, {now} now)")
    if wrong:
        raise ValueError(
            f"a run cannot continue with other settings: {'; '.join(wrong)}. Leave them out, or "
            f"start a new run in another folder"
        )
    for note in notes:
        say(note)
    # Only the folder of the origin may differ, which a resumed run does not need.
    return run_from_json({**new, "origin": old["origin"]})


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Settings that differ, by dotted path; a value of another kind counts as one setting."""
    same_kind = isinstance(old, dict) and isinstance(new, dict) and old["kind"] == new["kind"]
    if same_kind:
        for name in old:
            inner = f"{path}.{name}" if path else name
            yield from differences(old[name], new[name], inner)
    elif old != new:
        yield path, _short(old), _short(new)


def _short(value: Any) -> Any:
    return value["kind"] if isinstance(value, dict) else value


def require_finite_end(folder: Path) -> None:
    """Raise NonFiniteError for a run that ended with NaN, since it would again."""
    rows = metrics.read(folder / "metrics.jsonl")
    if rows and rows[-1].get("exit") == NON_FINITE:
        raise NonFiniteError(
            f"{folder} ended at step {rows[-1]['step']} with NaN or infinity, and would again: "
            f"change its settings, or start without torchrun's restarts"
        )
