"""PyTorch's pickle files of weights (.bin, .pt), read on request only.

`torch.load` with `weights_only=True` builds tensors and plain containers and refuses all else;
there is no way to turn that off here. What is read is written again as safetensors.
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
        if not path.is_file():  # a pipe would block
            raise ValueError(f"{path} is not a file")
        if size > limits.MAX_PICKLE_BYTES:
            raise ValueError(
                f"{path} has {size:,} bytes, but the limit is {limits.MAX_PICKLE_BYTES:,} "
                f"(MAX_PICKLE_BYTES)"
            )
        is_zip = zipfile.is_zipfile(path)
        try:
            if is_zip and _unpacked_bytes(path) > size:
                raise OverflowError("it is compressed, but torch does not compress weights")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about what it is going to refuse
                loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        except Exception as problem:  # a forged file can provoke many kinds
            raise ValueError(
                f"{path} contains more than weights, and nothing else is read from a pickle "
                f"({type(problem).__name__}): ask its publisher for safetensors"
            ) from None
        if not isinstance(loaded, dict) or not all(
            isinstance(name, str) and isinstance(value, Tensor) for name, value in loaded.items()
        ):
            raise ValueError(f"{path} is not a dictionary from names to tensors")
        for name, value in loaded.items():
            _require_stored(value, f"{path}: {printable(name)}")
        self.tensors: dict[str, Tensor] = loaded

    def names(self) -> Iterable[str]:
        return self.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name].contiguous()

    def release(self, name: str) -> None:
        """Nothing to do: torch maps the file as a whole."""


def _require_stored(tensor: Tensor, where: str) -> None:
    """Refuse sparse and expanded tensors, which claim more numbers than the file holds."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise ValueError(f"{where} is sparse or has no data: weights must be dense tensors")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(
            f"{where} has shape {tuple(tensor.shape)}, but fewer elements in the file: it must be "
            f"saved as a contiguous tensor (.contiguous())"
        )


def _unpacked_bytes(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in archive.infolist())
