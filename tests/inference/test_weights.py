"""The names of the forms of weights."""

from typing import get_args

from clearformer.arguments import Weights
from clearformer.inference.weights import QUANTIZERS, WEIGHTS


def test_every_form_but_float32_has_a_quantizer():
    assert get_args(Weights) == WEIGHTS == ("float32", *QUANTIZERS)
