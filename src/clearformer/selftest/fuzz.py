"""G7: fuzzing with damaged files and commands: each is refused in one line or works."""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from clearformer import data
from clearformer.builder import outline
from clearformer.config import run_from_json, to_json
from clearformer.config.run import RunConfig
from clearformer.families import preset
from clearformer.families.recipes import recipe
from clearformer.hub import importing
from clearformer.hub.pickle_files import PickleFile
from clearformer.hub.safetensors_files import SafetensorsFile
from clearformer.selftest import command_runner, malicious_files, processes
from clearformer.selftest.processes import require
from clearformer.selftest.untrusted_files import GPT2, gpt2_weights
from clearformer.text import BytePairs, WordPieces
from clearformer.text import from_json as tokenizer_from_json

MAX_CPU_SECONDS = 5.0  # for a single file
MAX_SECONDS = 120.0  # by the clock, on a machine that may be busy
MAX_MEMORY = 2**30
Counts = dict[str, int]


def fuzz(workdir: Path, *, share: float) -> str:
    """A share of 100,000 safetensors, 20,000 .pt, 20,000 tokenizers, 5,000 configs, and so on."""
    full = {
        "safetensors": 100_000,
        "pickles": 20_000,
        "tokenizers": 20_000,
        "configs": 5_000,
        "tables": 2_000,
        "commands": 300,
    }
    counts = {kind: max(1, round(share * count)) for kind, count in full.items()}
    before = processes.call(processes.peak_memory)
    # In a child process, to measure its memory and to end it if it hangs.
    result = processes.call(_fuzz, str(workdir), counts, seconds=3600)
    grown = result["memory"] - before
    require(result["memory"] < MAX_MEMORY, f"it took {result['memory'] / 2**20:.0f} MiB")
    total = sum(counts.values())
    return (
        f"{total:,} files and commands: {result['refused']:,} refused, the others work; slowest "
        f"{result['slowest']:.2f} s, {grown / 2**20:.0f} MiB on top of {before / 2**20:.0f}"
    )


def _fuzz(workdir: str, counts: Counts) -> dict[str, float]:
    torch.set_num_threads(1)
    refused, slowest = 0, 0.0
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        for kind, count in counts.items():
            rng = random.Random(f"7 {kind}")
            attempts = KINDS[kind](Path(folder), rng.randrange)
            for _, attempt in zip(range(count), attempts, strict=False):
                began, computed = time.perf_counter(), time.process_time()
                refused += _refused(kind, attempt)
                slowest = max(slowest, time.process_time() - computed)
                too_long = slowest > MAX_CPU_SECONDS or time.perf_counter() - began > MAX_SECONDS
                require(not too_long, f"one of the {kind} took over {MAX_CPU_SECONDS:g} s")
    return {"refused": refused, "slowest": slowest, "memory": processes.peak_memory()}


def _refused(kind: str, attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except ValueError as problem:
        require("\n" not in str(problem), f"{kind}: more than a line: {problem!s:.300}")
        return True
    except processes.Missed:
        raise
    except BaseException as problem:  # a panic of a Rust library is not an Exception
        raise processes.Missed(f"{kind}: {type(problem).__name__}: {problem!s:.300}") from problem
    return False


Draw = Callable[[int], int]
Attempts = Iterator[Callable[[], Any]]


def _safetensors(folder: Path, draw: Draw) -> Attempts:
    path = folder / "model.safetensors"
    honest = [
        save({"a": torch.ones(2, 3), "b": torch.arange(5)}, {"made": "here"}),
        *malicious_files.tensor_files().values(),
    ]
    while True:
        path.write_bytes(malicious_files.damage_bytes(honest[draw(2) * draw(len(honest))], draw))
        yield lambda: [SafetensorsFile(path).tensor(name) for name in SafetensorsFile(path).names()]


def _pickles(folder: Path, draw: Draw) -> Attempts:
    path, marker = folder / "weights.bin", folder / "marker"
    honest = malicious_files.weights_file({"a": torch.ones(2, 3), "b": torch.zeros(4)})
    hostile = [
        malicious_files.as_zip(malicious_files.as_pickle(v))
        for v in malicious_files.calls(marker).values()
    ]

    def attempt() -> None:
        file = PickleFile(path)
        for name in file.names():
            file.tensor(name).sum()

    while True:
        source = honest if draw(3) else hostile[draw(len(hostile))]
        path.write_bytes(malicious_files.damage_bytes(source, draw))
        yield attempt
        require(not marker.exists(), "a pickle ran")


def _tokenizers(folder: Path, draw: Draw) -> Attempts:
    words = ["the cat sat on the mat", "a dog ran, didn't it?", "été 12"] * 3
    made = BytePairs.train(words, 280), WordPieces.train(words, 64)
    documents = [each.document for each in made]
    native = [each.to_json() for each in made]

    def probe(read: Callable[[Any], Any], document: Any) -> None:
        tokenizer = read(document)
        tokenizer.decode(tokenizer.encode("the cat's été 12 " + "a" * 300))

    while True:
        which = draw(2)
        if draw(2):
            damaged: Any = malicious_files.damage_json(native[which], draw)
            yield partial(probe, tokenizer_from_json, damaged)
        else:
            damaged = malicious_files.damage_json(documents[which], draw)
            if not draw(20):
                pattern = malicious_files.EVIL_PATTERNS[draw(len(malicious_files.EVIL_PATTERNS))]
                damaged = {**documents[0], "pre_tokenizer": malicious_files.split_by(pattern)}
            kind = (BytePairs, WordPieces)[which]
            yield partial(probe, kind.from_library, damaged)


def _configs(folder: Path, draw: Draw) -> Attempts:
    home = folder / "hub"
    home.mkdir()
    (home / "model.safetensors").write_bytes(save(gpt2_weights()))
    model = preset("modern-tiny")
    settings, train = recipe(model)
    native = to_json(RunConfig(model=model, data=settings, train=train))

    def read_native(document: Any) -> None:
        outline(run_from_json(document).model)

    def read_hugging_face() -> None:
        importing.import_checkpoint(home, tokenizer="bytes")

    while True:
        if draw(2):
            damaged: Any = malicious_files.damage_json(native, draw)
            yield partial(read_native, damaged)
        else:
            changed = malicious_files.damage_json(GPT2, draw)
            (home / "config.json").write_text(json.dumps(changed))
            yield read_hugging_face


def _tables(folder: Path, draw: Draw) -> Attempts:
    rows = b'text,label\n"a, b",x\nc,y\n"d ""e""",x\n'

    def read_text(path: str) -> None:
        list(data.open_text(path).decoded())

    def read_rows(path: str) -> None:
        data.label_names(data.read_table(path, "text", "label"))

    lines = b'{"text":"a","label":"x"}\n{"text":"b","label":"y"}\n'
    while True:
        name, content = [("a.csv", rows), ("a.jsonl", lines), ("a.txt", rows)][draw(3)]
        path = folder / name
        path.write_bytes(malicious_files.damage_bytes(content, draw))
        if name == "a.txt":
            yield partial(read_text, str(path))
        else:
            yield partial(read_rows, str(path))


VALUES = ("", "-1", "0", "nan", "inf", "1e400", "x", "9" * 30, "../..", "é", "[]", "None", "1.5")
FLAGS = (
    "--temperature", "--max-tokens", "--top-k", "--top-p", "--seed", "--samples", "--batch-size",
    "--data", "--steps", "--lr", "--model.width", "--model.layers", "--train.gradient-clip",
    "--out",
    "--precision", "--tokenizer", "--evaluations", "--wrong", "--json", "--keep-checkpoints",
    "--position",
    "--help", "--beam",
)  # fmt: skip
COMMANDS = (
    "generate",
    "evaluate",
    "train",
    "classify",
    "import",
    "describe",
    "embed",
    "fill",
    "data",
)


def _commands(folder: Path, draw: Draw) -> Attempts:
    # Flags may name folders ("-1", "../.."), all of which must be below the temporary one.
    here = folder / "some" / "where"
    here.mkdir(parents=True)

    def attempt(arguments: list[str]) -> None:
        with contextlib.chdir(here):
            outcome = command_runner.run(arguments)
        ended = f"{' '.join(arguments)!r} ended with {outcome.code}: {outcome.err[-300:]!r}"
        require(outcome.code in (0, 2) and outcome.clean, ended)
        if outcome.code:
            raise ValueError("refused")

    while True:
        arguments = [COMMANDS[draw(len(COMMANDS))], str(folder / "absent")]
        for _ in range(1 + draw(4)):
            arguments.append(FLAGS[draw(len(FLAGS))])
            if draw(8):
                arguments.append(VALUES[draw(len(VALUES))])
        if arguments[0] == "train":  # must not start a training run
            arguments[1:2] = ["modern-tiny", "--data", str(folder / "absent"), "--out", str(folder)]
        yield partial(attempt, arguments)


KINDS: dict[str, Callable[[Path, Draw], Attempts]] = {
    "safetensors": _safetensors,
    "pickles": _pickles,
    "tokenizers": _tokenizers,
    "configs": _configs,
    "tables": _tables,
    "commands": _commands,
}
