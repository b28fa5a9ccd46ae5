"""Norm and activation configs create their modules; importing them does not load torch."""

import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from clearformer import config as c
from clearformer.core import block
from clearformer.extensions import layers


def test_norm_configs_create_modules():
    layer, rms = c.LayerNorm(epsilon=1e-3).module(7), c.RMSNorm(epsilon=1e-4).module(7)
    assert (type(layer), layer.eps, layer.weight.shape) == (nn.LayerNorm, 1e-3, (7,))
    assert (type(rms), rms.eps, rms.weight.shape) == (layers.RMSNorm, 1e-4, (7,))


@dataclass(frozen=True)
class Swish(c.Activation):
    beta: float

    def __call__(self, x):
        return x * torch.sigmoid(self.beta * x)


def test_activation_config_creates_feed_forward():
    layer = Swish(2.0).feed_forward(4, 12, bias=False, dropout=0.1)
    assert type(layer) is block.FeedForward
    assert (layer.up.weight.shape, layer.up.bias, layer.dropout.p) == ((12, 4), None, 0.1)
    x = torch.randn(2, 3, 4)
    expected = layer.down(Swish(2.0)(layer.up(x)))
    torch.testing.assert_close(layer.eval()(x), expected)


@pytest.mark.parametrize("base", [c.Norm, c.Activation])
def test_base_class_is_abstract(base):
    with pytest.raises(TypeError, match="abstract"):
        base()


@pytest.mark.parametrize("name", ["clearformer.config", "clearformer.families"])
def test_configs_do_not_import_torch(name):
    """So that `--help` and a list of presets are instant."""
    script = (
        f"import sys, {name}; from clearformer.families import preset, presets;"
        "[preset(each) for each in presets()]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
