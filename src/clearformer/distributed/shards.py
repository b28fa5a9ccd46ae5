"""Tensors that are spread over ranks, on disk: each rank writes its parts, any number reads.

This is torch.distributed.checkpoint with its storage in safetensors: where a part belongs is
JSON in the file's header. Its usual storage keeps that in a pickle, which runs code when it is
read; there is none here, neither to write nor to read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def write(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this rank's parts into `folder`; either every rank succeeds or every rank fails."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    try:
        save(
            dict(tensors),
            storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True),
        )
    except CheckpointException as problem:
        causes = {f"rank {rank}: {cause[0]}" for rank, cause in problem.failures.items()}
        raise OSError(
            f"the optimizer's parts could not be written to {folder.parent}: "
            f"{'; '.join(sorted(causes))}; the checkpoint before is untouched"
        ) from None


def read(folder: Path, like: Callable[[str, torch.Size], Tensor]) -> dict[str, Tensor]:
    """Everything in `folder`, each tensor laid out as `like` (its name, its shape) is."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    found: dict[str, Any] = {}
    for name, about in reader.read_metadata().state_dict_metadata.items():
        assert isinstance(about, TensorStorageMetadata)
        found[name] = torch.empty_like(like(name, about.size), dtype=about.properties.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of loading in one process, which is what is wanted
        # Every rank reads what it needs by itself: nothing is to be agreed on.
        load(found, storage_reader=reader, no_dist=True)
    return found
