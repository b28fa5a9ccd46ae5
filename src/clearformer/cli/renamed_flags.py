"""Renamed flags: the old names work for one more release, with a note.

The table is applied to the words of a command before they are parsed. Add a verb or a flag to
`RENAMED`; remove the entries of a release in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from clearformer.cli.output import tell

# Settings of a run, by path. A flag may be any end of a path that holds the old name.
RENAMED_SETTINGS = {
    "train.lr": "train.learning-rate",
    "train.batch": "train.batch-size",
    "train.tokens": "train.batch-tokens",
    "train.accumulate": "train.accumulation-steps",
    "train.anneal": "train.decay-start",
    "train.clip": "train.gradient-clip",
    "train.smoothing": "train.label-smoothing",
    "train.ema": "train.ema-decay",
    "train.keep": "train.keep-checkpoints",
    "train.distribute": "train.parallel",
    "train.wait-seconds": "train.timeout-seconds",
    "train.tables": "train.embedding-std",
    "train.optimizer.adam-lr": "train.optimizer.adam-learning-rate",
    "data.validation-share": "data.validation-fraction",
    "data.text": "data.text-column",
    "data.label": "data.label-column",
    "data.cut": "data.truncate-to",
    "data.masking.share": "data.masking.rate",
    "data.masking.mask": "data.masking.mask-replace",
    "data.masking.random": "data.masking.random-replace",
    "model.past": "model.cache",
}


def _ends(path: str) -> list[str]:
    parts = path.split(".")
    return [f"--{'.'.join(parts[start:])}" for start in range(len(parts))]


_SETTINGS = {
    old: new
    for former, current in RENAMED_SETTINGS.items()
    for old, new in zip(_ends(former), _ends(current), strict=True)
    if old not in ("--lr", "--text", "--label")  # short names that stay
}
_MOVED = dict.fromkeys(_ends("model.head.ends"), "--generation.end-ids")
_MEMORY = dict(zip(_ends("model.past.length")[:2], _ends("model.cache.length")[:2], strict=True))

RENAMED: dict[str, dict[str, str]] = {  # by verb: old flag, new flag
    "generate": {
        "--length": "--max-tokens",
        "--least": "--min-tokens",
        "--batch": "--batch-size",
        "--typical": "--typical-p",
        "--repetition": "--repetition-penalty",
        "--frequency": "--frequency-penalty",
        "--past-context": "--context-overflow",
    },
    "translate": {"--length": "--max-tokens", "--batch": "--batch-size"},
    "fill": {"--top": "--top-k"},
    "evaluate": {"--most": "--max-bytes"},
    "embed": {"--normalised": "--normalize", "--no-normalised": "--no-normalize"},
    "train": _SETTINGS | _MOVED | _MEMORY,
    # --tokens of `plan` is the length of a run.
    "plan": {old: new for old, new in _SETTINGS.items() if old != "--tokens"} | _MOVED | _MEMORY,
}


def current_flags(words: Sequence[str]) -> list[str]:
    """Replace the old flags of a command by the new ones, with a note on stderr for each."""
    table = RENAMED.get(words[0], {}) if words else {}
    given = {_flag(word) for word in words}
    current, noted = [], set()
    for word in words:
        flag, (_, equals, value) = _flag(word), word.partition("=")
        if flag in table:
            new = table[flag]
            if new in given:
                raise ValueError(f"{flag} is the old name of {new}: give {new} alone")
            if flag not in noted:
                tell(f"note: {flag} is now {new}")
                noted.add(flag)
            word = f"{new}{equals}{value}"
        current.append(word)
    return current


def _flag(word: str) -> str:
    """The flag of `--flag` or `--flag=value`, spelled with hyphens as the parser allows both."""
    return word.partition("=")[0].replace("_", "-")
