"""Sharded tensors on disk: each rank writes its shards, any number of ranks reads them.

This is torch.distributed.checkpoint with safetensors files, whose JSON header says where a shard
belongs. The default storage uses pickle for that, which can run code when it is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def write(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this rank's shards into `folder`; either every rank succeeds or every rank fails."""
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
            f"the optimizer's shards could not be written to {folder.parent}: "
            f"{'; '.join(sorted(causes))}; the previous checkpoint is intact"
        ) from None


def read(folder: Path, like: Callable[[str, torch.Size], Tensor]) -> dict[str, Tensor]:
    """Read all tensors in `folder`, each sharded like `like(name, shape)`."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    tensors: dict[str, Any] = {}
    for name, metadata in reader.read_metadata().state_dict_metadata.items():
        assert isinstance(metadata, TensorStorageMetadata)
        tensors[name] = torch.empty_like(like(name, metadata.size), dtype=metadata.properties.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about loading in a single process
        # Every rank reads its shards independently.
        load(tensors, storage_reader=reader, no_dist=True)
    return tensors
