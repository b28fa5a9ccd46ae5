"""A checkpoint by its name on the hub, through `huggingface_hub` if it is installed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from clearformer.hub.safetensors_files import INDEX, PICKLED, WEIGHTS

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt")
TRANSLATOR = ("source.spm", "target.spm", "generation_config.json")
FILES = ("config.json", WEIGHTS, INDEX, "model-*-of-*.safetensors", *TOKENIZER, *TRANSLATOR)


def find(name: str, revision: str | None = None, allow_bin: bool = False) -> Path:
    """A folder or file here, or the hub's checkpoint of that name, downloaded or from its cache."""
    here = Path(os.path.expanduser(name))
    if name and here.exists():
        return here
    if not NAME.fullmatch(name):
        raise ValueError(f"there is no folder or file {name or repr(name)}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            f"there is no folder or file {name}, and to look for it on the hub huggingface_hub "
            f"must be installed: pip install 'clearformer[hub]'"
        ) from None
    wanted = [*FILES, PICKLED] if allow_bin else list(FILES)
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except Exception as problem:  # of its network library too, which is not ours to know
        reason = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
        raise ValueError(
            f"there is no folder or file {name}, and the hub did not give it: {reason:.200}"
        ) from None
