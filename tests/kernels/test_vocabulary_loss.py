"""Chunked loss: same value and gradient as the full loss, without holding all logits."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from clearformer.builder import build
from clearformer.core.heads import IGNORE, MaskedToken, at_once, cross_entropy
from clearformer.kernels import vocabulary_loss
from clearformer.kernels.vocabulary_loss import in_chunks, with_target_padded

ROWS, WIDTH, WORDS = 23, 8, 31


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(vocabulary_loss, "CHUNK", 5 * WORDS)


@pytest.fixture
def case():
    rows = torch.randn(ROWS, WIDTH)
    targets = torch.randint(WORDS, (ROWS,))
    targets[[0, 6, 7, 22]] = IGNORE
    return rows, targets


def outcome(loss, project, rows, targets, smoothing=0.0, cap=None, upstream=0.37):
    project, rows = copy.deepcopy(project), rows.clone().requires_grad_()
    total, count = loss(project, rows, targets, smoothing, cap)
    (upstream * total.sum()).backward()
    return total, count, rows.grad, *[p.grad for p in project.parameters()]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunked_loss_equals_full_loss(case, bias, smoothing, cap, dtype):
    rows, targets = case
    project = nn.Linear(WIDTH, WORDS, bias=bias, dtype=dtype)
    expected = outcome(at_once, project, rows.to(dtype), targets, smoothing, cap)
    found = outcome(in_chunks, project, rows.to(dtype), targets, smoothing, cap)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(other, one, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_autocast_error_is_no_larger_than_full_loss(case, half):
    rows, targets = case
    project = nn.Linear(WIDTH, WORDS, bias=False)
    exact = outcome(at_once, project.double(), rows.double(), targets)
    project = project.float()
    with torch.autocast("cpu", half):
        simple = outcome(at_once, project, rows, targets)
        chunks = outcome(in_chunks, project, rows, targets)
    assert chunks[0].dtype == torch.float32
    assert chunks[3].dtype == torch.float32
    for truth, one, other in zip(exact, simple, chunks, strict=True):
        assert (other - truth).abs().max() <= 2 * (one - truth).abs().max() + 1e-6


def test_chunked_loss_equals_full_loss_in_inference_mode(case):
    rows, targets = case
    project = nn.Linear(WIDTH, WORDS)
    with torch.inference_mode():
        expected = at_once(project, rows, targets, 0.0, None)
        torch.testing.assert_close(in_chunks(project, rows, targets, 0.0, None), expected)


def test_loss_is_zero_without_targets(case):
    rows, _ = case
    found = outcome(in_chunks, nn.Linear(WIDTH, WORDS), rows, torch.full((ROWS,), IGNORE))
    assert all(not part.any() for part in found)


def test_frozen_projection_gets_no_gradient(case):
    rows, targets = case
    project = nn.Linear(WIDTH, WORDS, bias=False).requires_grad_(False)
    expected = outcome(at_once, project, rows, targets)
    found = outcome(in_chunks, project, rows, targets)
    assert found[3] is None
    torch.testing.assert_close(found[2], expected[2])


class Largest(TorchDispatchMode):
    """The largest tensor that any operation gives."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple) else (found,):
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.numel())
        return found


def test_never_allocates_more_than_one_chunk_of_logits(case):
    rows, targets = (each.repeat(20, *[1] * (each.dim() - 1)) for each in case)
    with Largest() as seen:
        outcome(at_once, nn.Linear(WIDTH, WORDS), rows, targets)
    assert seen.numbers == 20 * ROWS * WORDS
    with Largest() as seen:
        outcome(in_chunks, nn.Linear(WIDTH, WORDS), rows, targets)
    assert seen.numbers == 20 * ROWS * WIDTH


@pytest.mark.parametrize("family", ["gpt2", "bert", "original", "modern"])
def test_model_gradients_match_full_loss(family, small, example, gradients, monkeypatch):
    """Tied, with a bias, with two objectives: what reaches every weight is the same."""
    config = small(family)
    model, batch = build(config).train(), example(config, size=4)
    found = gradients(model, batch)
    for head in model.modules():
        if hasattr(head, "vocabulary_loss"):
            head.vocabulary_loss = at_once
    for name, value in gradients(model, batch).items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("hidden_places", "rows"), [(0, 0), (1, 1), (64, 64), (65, 128), (128, 128)]
)
def test_masked_logits_are_padded_to_few_sizes(hidden_places, rows):
    """The number of masked tokens differs in every step; varying sizes would fragment the heap."""
    head = MaskedToken(
        WIDTH, F.gelu, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS), select=with_target_padded
    )
    sizes = []
    head.project.register_forward_hook(lambda _, given, logits: sizes.append(len(logits)))
    hidden = torch.randn(4, 32, WIDTH, requires_grad=True)
    targets = torch.full((128,), IGNORE)
    targets[torch.randperm(128)[:hidden_places]] = 1
    sums, counts = head.loss(hidden, targets.view(4, 32))
    assert sizes == [rows]
    assert counts.tolist() == [hidden_places]
    expected, _ = cross_entropy(head(hidden), targets.view(4, 32))
    torch.testing.assert_close(sums, expected)
    found, wanted = (torch.autograd.grad(each.sum(), hidden)[0] for each in (sums, expected))
    torch.testing.assert_close(found, wanted)
