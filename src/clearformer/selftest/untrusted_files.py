"""G8 and G9: malicious pickles and archives are read without running or writing anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

from clearformer.data.archives import tar_files
from clearformer.hub.pickle_files import PickleFile
from clearformer.selftest import command_runner, malicious_files
from clearformer.selftest.processes import require
from clearformer.text import BytePairs

GPT2 = {
    "model_type": "gpt2",
    "n_layer": 1,
    "n_embd": 8,
    "n_head": 2,
    "n_positions": 8,
    "vocab_size": 256,
}


def commands(folder: str, out: str) -> tuple[list[str], ...]:
    """Every command that opens a folder."""
    return (
        ["import", folder, "--out", out, "--allow-bin", "--tokenizer", "bytes"],
        ["import", folder, "--out", out],
        ["generate", folder, "x", "--max-tokens", "1"],
        ["evaluate", folder],
        ["classify", folder, "x"],
        ["embed", folder, "x"],
        ["fill", folder, "x"],
        ["translate", folder, "x"],
        ["export", folder, "--out", out],
        ["average", folder, "--out", out],
        ["describe", folder],
        ["train", "--from", folder, "--out", out, "--data", "python-docs", "--steps", "1"],
    )


def pickles(workdir: Path, *, every_verb: int) -> str:
    """G8: thirty payloads in three containers, and the first ones through every command."""
    marker = workdir / "marker"
    payloads = malicious_files.calls(marker)
    tried = 0
    for number, (name, value) in enumerate(payloads.items()):
        folder = workdir / "folder"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(GPT2))
        path = folder / "pytorch_model.bin"
        pickled = malicious_files.as_pickle(
            value, 4 if name in ("stack global", "new object") else 2
        )
        for container in (b"\x80\x02}." + pickled, pickled, malicious_files.as_zip(pickled)):
            path.write_bytes(container)
            try:
                PickleFile(path)
            except ValueError as problem:
                require("nothing else is read" in str(problem), f"{name}: {problem}")
            require(not marker.exists(), f"{name}: reading it ran the payload")
            tried += 1
        for arguments in commands(str(folder), str(workdir / "out")) if number < every_verb else ():
            outcome = command_runner.run(arguments)
            tried += 1
            require(outcome.code == 2, f"{name}: {arguments[0]} ended with {outcome.code}")
            require(outcome.clean, f"{name}: {arguments[0]} wrote {outcome.err[-300:]!r}")
            require(not marker.exists(), f"{name}: {arguments[0]} ran the payload")
    path.write_bytes(malicious_files.weights_file(gpt2_weights()))
    honest = command_runner.run(commands(str(folder), str(workdir / "out"))[0])
    require(honest.code == 0, f"an honest file was refused: {honest.err[-300:]}")
    return f"0 of {len(payloads)} payloads ran, in {tried} attempts"


def gpt2_weights() -> dict[str, torch.Tensor]:
    """Zero weights for the GPT2 config above."""
    block = {
        "ln_1.weight": (8,), "ln_1.bias": (8,), "ln_2.weight": (8,), "ln_2.bias": (8,),
        "attn.c_attn.weight": (8, 24), "attn.c_attn.bias": (24,),
        "attn.c_proj.weight": (8, 8), "attn.c_proj.bias": (8,),
        "mlp.c_fc.weight": (8, 32), "mlp.c_fc.bias": (32,),
        "mlp.c_proj.weight": (32, 8), "mlp.c_proj.bias": (8,),
    }  # fmt: skip
    shapes = {"wte.weight": (256, 8), "wpe.weight": (8, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
    shapes |= {f"h.0.{name}": shape for name, shape in block.items()}
    return {f"transformer.{name}": torch.zeros(shape) for name, shape in shapes.items()}


def encode_by(pattern: str) -> str:
    """The result of a tokenizer.json with its own pre-tokenizer pattern."""
    document = {
        "version": "1.0",
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(malicious_files.BYTES)},
            "merges": [],
        },
        "pre_tokenizer": malicious_files.split_by(pattern),
        "decoder": {"type": "ByteLevel"},
    }
    try:
        BytePairs.from_library(document).encode("a" * 7000 + "!")
    except ValueError as problem:
        return str(problem)
    return "encoded"


def archives(workdir: Path) -> str:
    """G9: twelve malicious archives are read, and nothing is written."""
    folder = workdir / "archives"
    folder.mkdir()
    count = 0
    for name, path in malicious_files.archives(folder):
        before = {each: each.stat().st_mtime_ns for each in workdir.rglob("*")}
        try:
            contents = [data for _, data in tar_files(path, malicious_files.PATTERN, 10**6)]
        except ValueError as problem:
            require(str(path) in str(problem), f"{name}: {problem} does not name the file")
            contents = []
        require(b"root" not in b"".join(contents), f"{name}: a file of the system was read")
        after = {each: each.stat().st_mtime_ns for each in workdir.rglob("*")}
        require(before == after, f"{name}: {set(after) - set(before) or 'a file'} was written")
        count += 1
    return f"0 of {count} archives wrote anything"
