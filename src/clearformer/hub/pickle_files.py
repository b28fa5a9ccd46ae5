"""PyTorch's older weight files (.bin, .pt), on request only: they are pickles.

`torch.load` with `weights_only=True` builds tensors and plain containers and refuses all else;
there is no way here to turn that off. What is read is written again as safetensors.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from clearformer import limits
from clearformer.hub.safetensors_files import printable


class PickleFile:
    """The tensors of one .bin or .pt file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        if not path.is_file():  # a pipe would keep us waiting for ever
            raise ValueError(f"{path} is no file")
        if size > limits.MAX_PICKLE_BYTES:
            raise ValueError(
                f"{path} has {size:,} bytes, but {limits.MAX_PICKLE_BYTES:,} are the most "
                f"(MAX_PICKLE_BYTES)"
            )
        modern = zipfile.is_zipfile(path)
        try:
            if modern and _unpacked(path) > size:
                raise OverflowError("it is packed, but torch writes its weights unpacked")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what it is going to refuse
                found = torch.load(path, map_location="cpu", weights_only=True, mmap=modern)
        except Exception as problem:  # of a dozen kinds, whatever a forged file can provoke
            raise ValueError(
                f"{path} does not hold weights alone, and nothing else is read from a pickle "
                f"({type(problem).__name__}): ask its maker for safetensors"
            ) from None
        if not isinstance(found, dict) or not all(
            isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
        ):
            raise ValueError(f"{path} is no plain table from names to tensors")
        for name, value in found.items():
            _require_whole(value, f"{path}: {printable(name)}")
        self.tensors: dict[str, Tensor] = found

    def names(self) -> Iterable[str]:
        return self.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name].contiguous()

    def release(self, name: str) -> None:
        """The file is mapped by torch, which keeps it whole."""


def _require_whole(tensor: Tensor, where: str) -> None:
    """Numbers that lie in memory, each once: others promise more than the file holds."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise ValueError(f"{where} is sparse, or without numbers: weights are plain tensors")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(
            f"{where} has shape {tuple(tensor.shape)}, but fewer numbers in the file: its maker "
            f"should save it whole (.contiguous())"
        )


def _unpacked(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in archive.infolist())
