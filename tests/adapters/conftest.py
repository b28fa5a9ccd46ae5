"""Fixtures: a tiny model of each family, and adapters with drawn weights."""

import pytest
import torch

from clearformer.adapters.attach import adapted_layers
from clearformer.builder import build


@pytest.fixture
def model_of(small, scrambled):
    def make(family, **changes):
        torch.manual_seed(0)
        return scrambled(build(small(family, **changes))).eval()

    return make


@pytest.fixture(scope="session")
def drawn():
    """Draw every B and magnitude, so that an adapter changes something."""

    def draw(model):
        torch.manual_seed(1)
        with torch.no_grad():
            for _, layer in adapted_layers(model):
                for name, parameter in layer.named_parameters():
                    if parameter.requires_grad and not name.startswith("base."):
                        parameter.add_(0.1 * torch.randn_like(parameter))
        return model

    return draw
