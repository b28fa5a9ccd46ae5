"""How many tables of scores the seed's printed self-attention keeps for its backward pass."""

import importlib.util
from pathlib import Path

import torch

spec = importlib.util.spec_from_file_location(
    "seed_classes", Path(__file__).parent / "seed_classes.py"
)
seed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(seed)


def test_erratum_19_one_table_is_kept_for_each_layer():
    tokens, layers, kept = 24, 3, {}

    def note(tensor):
        if tuple(tensor.shape[-2:]) == (tokens, tokens):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    model = torch.nn.Sequential(*(seed.TransformerBlock(16, heads=4) for _ in range(layers)))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model(torch.randn(2, tokens, 16))
    assert len(kept) == layers
