"""Locate a checkpoint: a local path, or a name on the Hugging Face hub."""

from __future__ import annotations

import os
import re
from pathlib import Path

from clearformer.hub.safetensors_files import INDEX, PICKLED, WEIGHTS

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt")
TRANSLATOR = ("source.spm", "target.spm", "generation_config.json")
FILES = ("config.json", WEIGHTS, INDEX, "model-*-of-*.safetensors", *TOKENIZER, *TRANSLATOR)


def locate_checkpoint(name: str, revision: str | None = None, allow_bin: bool = False) -> Path:
    """A local folder or file, or the hub's checkpoint of that name, downloaded or cached."""
    local = Path(os.path.expanduser(name))
    if name and local.exists():
        return local
    if not NAME.fullmatch(name):
        raise ValueError(f"there is no folder or file {name or repr(name)}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            f"there is no folder or file {name}, and to look for it on the hub huggingface_hub "
            f"must be installed: pip install 'clearformer[hub]'"
        ) from None
    patterns = [*FILES, PICKLED] if allow_bin else list(FILES)
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as problem:  # including those of its network library
        reason = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
        raise ValueError(
            f"there is no folder or file {name}, and the hub did not give it: {reason:.200}"
        ) from None
