"""The flex_attention kernel, values only: it has no backward pass on CPU."""

import pytest
import torch

from clearformer.core import kernels
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Fixed, Local, Strided
from clearformer.extensions.patterns import Region, Row, Shifted
from clearformer.kernels.flex import flex

PATTERNS = {
    "strided": Causal() & (Local(4) | Strided(5)),
    "fixed": Causal() & Fixed(6, 2),
    "some see nothing": Local(7) - Causal(),
    "picture after a caption": Shifted(Row(3) | Strided(4), 2),
    "region": Region((3, None), (0, 4)),
}


@pytest.mark.filterwarnings("ignore")  # that it is slow without torch.compile
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("queries", [37, 20])
@pytest.mark.parametrize("name", PATTERNS)
def test_matches_masked_dense_kernel(name, queries, padded):
    q = torch.randn(1, 3, queries, 16)
    k, v = torch.randn(2, 1, 3, 37, 16)
    attention_mask = (torch.arange(37) >= 5)[None] if padded else None
    expected = kernels.explicit(q, k, v, Mask(PATTERNS[name], attention_mask), None, 0.0)
    given = flex(q, k, v, PATTERNS[name], -5 if padded else 0, attention_mask)
    torch.testing.assert_close(given, expected)
