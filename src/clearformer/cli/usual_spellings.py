"""Flags as other tools spell them: they work like our own, without a note.

The table is applied to the words of a command before they are parsed. A flag that a command has
itself is never replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

# As in Hugging Face's Trainer, Lightning, Keras, fairseq, llama.cpp and the usual scripts.
TRAIN = {
    "--max-steps": "--steps",
    "--num-steps": "--steps",
    "--iterations": "--steps",
    "--max-iters": "--steps",
    "--num-epochs": "--epochs",
    "--num-train-epochs": "--epochs",
    "--max-epochs": "--epochs",
    "--epoch": "--epochs",
    "--output": "--out",
    "--output-dir": "--out",
    "--out-dir": "--out",
    "-o": "--out",
    "--dataset": "--data",
    "--train-file": "--data",
    "--train-data": "--data",
    "--input": "--data",
    "--validation-file": "--validation",
    "--val-data": "--validation",
    "--eval-data": "--validation",
    "--val-fraction": "--validation-fraction",
    "--test-size": "--validation-fraction",
    "--batchsize": "--batch-size",
    "--bs": "--batch-size",
    "--train-batch-size": "--batch-size",
    "--per-device-train-batch-size": "--batch-size",
    "--gradient-accumulation-steps": "--accumulation-steps",
    "--grad-clip": "--gradient-clip",
    "--max-grad-norm": "--gradient-clip",
    "--random-seed": "--seed",
    "--random-state": "--seed",
    "--context-length": "--length",
    "--max-length": "--length",
    "--max-seq-length": "--length",
    "--block-size": "--length",
    "--n-layers": "--layers",
    "--num-layers": "--layers",
    "--n-layer": "--layers",
    "--n-heads": "--heads",
    "--num-heads": "--heads",
    "--n-head": "--heads",
    "--hidden-size": "--width",
    "--n-embd": "--width",
    "--d-model": "--width",
    "--early-stopping": "--patience",
    "--metric": "--best-metric",
    "--class-weight": "--class-weights",
    "--sep": "--delimiter",
    "--resume-from": "--resume",
}
OUT = {"--output": "--out", "--output-file": "--out", "-o": "--out"}
GENERATE = {
    "--max-new-tokens": "--max-tokens",
    "--max-length": "--max-tokens",
    "--num-tokens": "--max-tokens",
    "--n-predict": "--max-tokens",
    "--temp": "--temperature",
    "--topk": "--top-k",
    "--topp": "--top-p",
    "--num-samples": "--samples",
    "--num-return-sequences": "--samples",
    "--num-beams": "--beam",
    "--beams": "--beam",
    "--beam-size": "--beam",
    "--random-seed": "--seed",
    "--batchsize": "--batch-size",
}
READS = {"--input": "--file", "--data": "--file", "--text-column": "--text", "--sep": "--delimiter"}
USUAL: dict[str, dict[str, str]] = {
    "train": TRAIN,
    "plan": TRAIN,
    "generate": {**GENERATE, "--json": "--jsonl"},
    "translate": {**GENERATE, **OUT},
    "classify": {**OUT, **READS},
    "predict": {**OUT, **READS},
    "embed": {**OUT, "--input": "--file", "--text-column": "--text"},
    "evaluate": {
        **OUT,
        "--dataset": "--data",
        "--file": "--data",
        "--split": "--part",
        "--text-column": "--text",
        "--label-column": "--label",
        "--sep": "--delimiter",
    },
    "data": {"--text-column": "--text", "--label-column": "--label", "--sep": "--delimiter"},
    "export": {**OUT, "--format": "--to"},
    "import": OUT,
}
# Flags for what is an argument here: the model comes first, the rest behind it.
MODEL = ("--model", "--run")
ARGUMENTS: dict[str, tuple[str, ...]] = {"generate": ("--prompt",), "evaluate": ("--compare",)}
TAKES_MODEL = ("generate", "classify", "predict", "evaluate", "translate", "embed", "fill")
# Flags with several values; other tools repeat the flag for each.
SEVERAL = {"train": ("--log",), "generate": ("--stop", "--banned")}


def usual_spellings(words: Sequence[str]) -> list[str]:
    """The words of a command, with flags of other tools replaced by our own."""
    if not words:
        return []
    verb, *rest = words
    table = USUAL.get(verb, {})
    first = MODEL if verb in TAKES_MODEL else ("--preset",) if verb in ("train", "plan") else ()
    second = ARGUMENTS.get(verb, ())
    given = {_flag(word) for word in rest}
    models, arguments, found = list[str](), list[str](), list[str]()
    left = iter(rest)
    for word in left:
        flag, (_, equals, value) = _flag(word), word.partition("=")
        if flag in (*first, *second):
            (models if flag in first else arguments).append(value if equals else next(left, ""))
        elif flag in table and table[flag] not in given:
            found.append(f"{table[flag]}{equals}{value}")
        else:
            found.append(word)
    for flag in SEVERAL.get(verb, ()):
        found = _given_once(found, flag)
    found = models + found
    # Behind the model, not at the end, where a flag with several values would take it.
    place = 1 if found and not found[0].startswith("-") else len(found)
    return [verb, *found[:place], *arguments, *found[place:]]


def _given_once(words: list[str], flag: str) -> list[str]:
    """The words with all values of a repeated flag behind its first occurrence."""
    if sum(_flag(word) == flag for word in words) < 2:
        return words
    others, values, place = list[str](), list[str](), None
    inside = False  # among the values of the flag
    for word in words:
        if _flag(word) == flag:
            inside = "=" not in word
            values += [] if inside else [word.partition("=")[2]]
            place = len(others) if place is None else place
        elif inside and not word.startswith("-"):
            values.append(word)
        else:
            inside = False
            others.append(word)
    return [*others[:place], flag, *values, *others[place:]]


def _flag(word: str) -> str:
    """The flag of `--flag` or `--flag=value`, spelled with hyphens; other words as they are."""
    return word.partition("=")[0].replace("_", "-") if word.startswith("-") else word
