"""G7: files and words damaged at random. Each is refused in a sentence or works; none hangs."""

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
from clearformer.build import outline
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

SLOWEST = 5.0  # seconds of computing that a single file may take
HANGS = 120.0  # seconds by the clock: on a busy machine others compute meanwhile
MEMORY = 2**30
Counts = dict[str, int]


def fuzz(place: Path, *, share: float) -> str:
    """A share of 100,000 safetensors, 20,000 .pt, 20,000 tokenizers, 5,000 configs, and so on."""
    full = {
        "safetensors": 100_000,
        "pickles": 20_000,
        "tokenizers": 20_000,
        "configs": 5_000,
        "tables": 2_000,
        "words": 300,
    }
    counts = {kind: max(1, round(share * count)) for kind, count in full.items()}
    before = processes.ask(processes.peak_memory)
    # In a process of its own, so that its memory is its own and a hang has an end.
    found = processes.ask(_all, str(place), counts, seconds=3600)
    grown = found["memory"] - before
    require(found["memory"] < MEMORY, f"it took {found['memory'] / 2**20:.0f} MiB")
    total = sum(counts.values())
    return (
        f"{total:,} files and commands: {found['refused']:,} refused, the others work; slowest "
        f"{found['slowest']:.2f} s, {grown / 2**20:.0f} MiB on top of {before / 2**20:.0f}"
    )


def _all(place: str, counts: Counts) -> dict[str, float]:
    torch.set_num_threads(1)
    found = {"refused": 0, "slowest": 0.0}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for kind, count in counts.items():
            chance = random.Random(f"7 {kind}")
            attempts = KINDS[kind](Path(folder), chance.randrange)
            for _, attempt in zip(range(count), attempts, strict=False):
                began, computed = time.perf_counter(), time.process_time()
                found["refused"] += _refused(kind, attempt)
                found["slowest"] = max(found["slowest"], time.process_time() - computed)
                long = found["slowest"] > SLOWEST or time.perf_counter() - began > HANGS
                require(not long, f"a file of the {kind} took longer than {SLOWEST:g} s")
    return {**found, "memory": processes.peak_memory()}


def _refused(kind: str, attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except ValueError as problem:
        require("\n" not in str(problem), f"{kind}: more than a line: {problem!s:.300}")
        return True
    except processes.Missed:
        raise
    except BaseException as problem:  # a panic of a library written in Rust is no Exception
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
        path.write_bytes(malicious_files.spoil_bytes(honest[draw(2) * draw(len(honest))], draw))
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
        path.write_bytes(malicious_files.spoil_bytes(source, draw))
        yield attempt
        require(not marker.exists(), "a pickle ran")


def _tokenizers(folder: Path, draw: Draw) -> Attempts:
    words = ["the cat sat on the mat", "a dog ran, didn't it?", "été 12"] * 3
    made = BytePairs.train(words, 280), WordPieces.train(words, 64)
    documents = [each.document for each in made]
    own = [each.to_json() for each in made]

    def probe(read: Callable[[Any], Any], document: Any) -> None:
        tokenizer = read(document)
        tokenizer.decode(tokenizer.encode("the cat's été 12 " + "a" * 300))

    while True:
        which = draw(2)
        if draw(2):
            spoiled: Any = malicious_files.spoil_json(own[which], draw)
            yield partial(probe, tokenizer_from_json, spoiled)
        else:
            spoiled = malicious_files.spoil_json(documents[which], draw)
            if not draw(20):
                pattern = malicious_files.EVIL_PATTERNS[draw(len(malicious_files.EVIL_PATTERNS))]
                spoiled = {**documents[0], "pre_tokenizer": malicious_files.split_by(pattern)}
            kind = (BytePairs, WordPieces)[which]
            yield partial(probe, kind.from_library, spoiled)


def _configs(folder: Path, draw: Draw) -> Attempts:
    home = folder / "hub"
    home.mkdir()
    (home / "model.safetensors").write_bytes(save(gpt2_weights()))
    model = preset("modern-tiny")
    settings, train = recipe(model)
    own = to_json(RunConfig(model=model, data=settings, train=train))

    def own_outline(document: Any) -> None:
        outline(run_from_json(document).model)

    def foreign() -> None:
        importing.import_checkpoint(home, tokenizer="bytes")

    while True:
        if draw(2):
            spoiled: Any = malicious_files.spoil_json(own, draw)
            yield partial(own_outline, spoiled)
        else:
            changed = malicious_files.spoil_json(GPT2, draw)
            (home / "config.json").write_text(json.dumps(changed))
            yield foreign


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
        path.write_bytes(malicious_files.spoil_bytes(content, draw))
        if name == "a.txt":
            yield partial(read_text, str(path))
        else:
            yield partial(read_rows, str(path))


VALUES = ("", "-1", "0", "nan", "inf", "1e400", "x", "9" * 30, "../..", "é", "[]", "None", "1.5")
FLAGS = (
    "--temperature", "--max-tokens", "--top-k", "--top-p", "--seed", "--samples", "--batch",
    "--data", "--steps", "--lr", "--model.width", "--model.layers", "--train.clip", "--out",
    "--precision", "--tokenizer", "--evaluations", "--wrong", "--json", "--keep", "--position",
    "--help", "--beam",
)  # fmt: skip
WORDS = ("generate", "evaluate", "train", "classify", "import", "describe", "embed", "fill", "data")


def _words(folder: Path, draw: Draw) -> Attempts:
    # Flags may name folders ("-1", "../.."): all of them are to be below this one.
    here = folder / "some" / "where"
    here.mkdir(parents=True)

    def attempt(words: list[str]) -> None:
        with contextlib.chdir(here):
            outcome = command_runner.run(words)
        said = f"{' '.join(words)!r} left with {outcome.code} and said {outcome.err[-300:]!r}"
        require(outcome.code in (0, 2) and outcome.clean, said)
        if outcome.code:
            raise ValueError("refused")

    while True:
        words = [WORDS[draw(len(WORDS))], str(folder / "absent")]
        for _ in range(1 + draw(4)):
            words.append(FLAGS[draw(len(FLAGS))])
            if draw(8):
                words.append(VALUES[draw(len(VALUES))])
        if words[0] == "train":  # nothing may really begin
            words[1:2] = ["modern-tiny", "--data", str(folder / "absent"), "--out", str(folder)]
        yield partial(attempt, words)


KINDS: dict[str, Callable[[Path, Draw], Attempts]] = {
    "safetensors": _safetensors,
    "pickles": _pickles,
    "tokenizers": _tokenizers,
    "configs": _configs,
    "tables": _tables,
    "words": _words,
}
