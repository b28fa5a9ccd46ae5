"""Count the source files on the way through one forward pass and one generation.

    python benchmarks/reading_path.py

Counts the files of clearformer whose functions are called, and the switches: calls and returns
after which the running function is in another file, or in another folder, than the one before.
Generation is counted twice: by the plain loop of `core`, and as users call it (`generate.stream`).
Building the model is not counted.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import clearformer
from clearformer.builder import build, caches
from clearformer.config import GenerationDefaults
from clearformer.core.generate import generate, next_logits
from clearformer.core.model import Transformer
from clearformer.families.gpt2 import gpt2
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.stream import stream
from clearformer.text.plain import Bytes

ROOT = Path(clearformer.__file__).parent


def visited(function: Callable[[], object]) -> list[str]:
    """The files of clearformer that run, in order; one entry each time another file starts."""
    files: list[str] = []

    def profile(frame: FrameType | None, event: str, _: Any) -> None:
        if event == "return":
            frame = None if frame is None else frame.f_back
        elif event != "call":
            return
        if frame is None or not frame.f_code.co_filename.startswith(f"{ROOT}/"):
            return
        file = str(Path(frame.f_code.co_filename).relative_to(ROOT))
        if not files or files[-1] != file:
            files.append(file)

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return files


def report(name: str, files: list[str]) -> None:
    folders = [str(Path(file).parent) for file in files]
    between_files = len(files) - 1
    between_folders = sum(a != b for a, b in pairwise(folders))
    print(
        f"{name}: {len(set(files))} files in {len(set(folders))} folders, "
        f"{between_files} switches of file, {between_folders} of folder"
    )
    for file in dict.fromkeys(files):
        print(f"  {file}")


def main() -> None:
    config = replace(
        gpt2("small"), layers=1, width=16, heads=2, hidden=32, length=32, vocabulary=256
    )
    model = build(config).eval()
    assert isinstance(model, Transformer)
    with torch.no_grad():
        report("one forward pass", visited(lambda: model(torch.zeros(1, 8, dtype=torch.long))))
    logits = next_logits(model.hidden, model.head, caches(config))
    report("two tokens, plain loop", visited(lambda: generate(logits, b"a text", [0.5, 0.5])))
    generator = LanguageModel(model, config, GenerationDefaults(), Bytes())
    report("two tokens", visited(lambda: list(stream(generator, "a text", max_tokens=2))))


if __name__ == "__main__":
    main()
