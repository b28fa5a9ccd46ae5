"""Arrays in JSON: base64 of little-endian bytes, with shape and dtype.

JSON has no -Infinity, which masked scores need, and lists of numbers would be ten times as long.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from torch import Tensor


def floats(tensor: Tensor) -> dict[str, Any]:
    """A tensor as float32."""
    array = tensor.detach().to("cpu").float().contiguous().numpy()
    return _envelope(array.astype("<f4"), "float32")


def small(tensor: Tensor) -> dict[str, Any]:
    """A tensor quantized to bytes between its smallest and largest finite value."""
    array = tensor.detach().to("cpu").float().numpy()
    finite = array[np.isfinite(array)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    low = min(low, 0.0)
    span = (high - low) or 1.0
    finite_values = np.where(np.isfinite(array), array, low)
    shares = np.rint((finite_values - low) / span * 255).astype(np.uint8)
    return {**_envelope(shares, "uint8"), "scale": [low, low + span]}


def flags(tensor: Tensor) -> dict[str, Any]:
    """A tensor of booleans as bytes 0 and 1."""
    array = tensor.detach().to("cpu").numpy().astype(np.uint8)
    return {**_envelope(array, "uint8"), "scale": [0.0, 255.0]}


def number(value: float) -> float | str:
    """A single number; NaN and infinities, which JSON lacks, as strings."""
    if math.isfinite(value):
        return float(value)
    return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")


def unpack(envelope: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Decode an array; quantized bytes are scaled back."""
    kind = {"float32": "<f4", "uint8": "u1"}[envelope["dtype"]]
    array = np.frombuffer(base64.b64decode(envelope["data"]), dtype=kind)
    array = array.reshape(envelope["shape"])
    if envelope.get("scale") is not None:
        low, high = envelope["scale"]
        array = low + array.astype(np.float64) / 255 * (high - low)
    return array


def _envelope(array: np.ndarray[Any, Any], kind: str) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"shape": list(array.shape), "dtype": kind, "data": data}
