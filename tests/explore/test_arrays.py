"""Encoding of arrays, including infinities and NaN."""

import base64
import json
import math

import numpy as np
import torch

from clearformer.explore import arrays


def test_floats_round_trip_bitwise():
    values = torch.tensor([[1.5, -math.inf], [math.nan, 1e-30]])
    sent = json.loads(json.dumps(arrays.floats(values)))
    assert sent["shape"] == [2, 2]
    assert base64.b64decode(sent["data"]) == values.numpy().astype("<f4").tobytes()
    np.testing.assert_array_equal(arrays.unpack(sent), values.numpy())


def test_small_arrays_are_within_half_a_quantization_step():
    values = torch.tensor([0.0, 0.1, 0.25, math.nan])
    sent = arrays.small(values)
    assert sent["dtype"] == "uint8"
    assert sent["scale"] == [0.0, 0.25]
    np.testing.assert_allclose(arrays.unpack(sent)[:3], values[:3], atol=0.25 / 255 / 2 + 1e-9)
    assert arrays.unpack(arrays.small(torch.tensor([-1.0, 1.0]))).tolist() == [-1, 1]
    assert arrays.unpack(arrays.small(torch.zeros(2))).tolist() == [0, 0]


def test_flags_are_encoded_as_bytes():
    assert arrays.unpack(arrays.flags(torch.tensor([True, False]))).tolist() == [1, 0]


def test_non_finite_numbers_are_strings():
    assert [arrays.number(x) for x in (1.5, math.nan, math.inf, -math.inf)] == [
        1.5, "nan", "inf", "-inf",
    ]  # fmt: skip
