import hashlib

import pytest
import torch

import clearformer as cf
from clearformer.adapters.attach import adapted_layers, attach, merge
from clearformer.builder import build
from clearformer.training import recompute

FAMILIES = ("gpt2", "modern", "bert", "xl", "classifier", "sparse", "original")


def loss(model, batch):
    sums, counts = model.loss(batch)
    return (sums / counts.clamp(min=1)).sum()


@pytest.mark.parametrize("kind", [cf.LoRA, cf.DoRA])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_adapter_is_the_model_itself(model_of, small, example, family, kind):
    model, batch = model_of(family), example(small(family))
    expected = loss(model, batch)
    attach(model, kind(rank=2), seed=0).eval()
    assert torch.equal(loss(model, batch), expected)


@pytest.mark.parametrize("kind", [cf.LoRA, cf.DoRA])
@pytest.mark.parametrize("family", FAMILIES)
def test_merged_model_computes_the_same(model_of, small, example, drawn, family, kind):
    model, batch = model_of(family), example(small(family))
    plain = loss(model, batch)
    drawn(attach(model, kind(rank=2), seed=0).eval())
    expected = loss(model, batch)
    merge(model)
    assert loss(model, batch).item() == pytest.approx(expected.item(), abs=1e-5)
    assert abs(plain - expected) > 1e-4
    assert list(model.state_dict()) == list(build(small(family)).state_dict())


@pytest.mark.parametrize("base", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("kind", [cf.LoRA, cf.DoRA])
def test_only_the_adapter_learns(model_of, small, example, kind, base):
    model, batch = model_of("modern"), example(small("modern"))
    attach(model, kind(rank=2, base=base), seed=0)
    frozen = digest(model)
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=0.05)
    before = loss(model, batch).item()
    for _ in range(5):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    assert loss(model, batch).item() < before
    assert digest(model) == frozen
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def digest(model):
    """A hash of everything that is frozen."""
    found = hashlib.sha256()
    tensors = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in tensors:
        if not tensor.requires_grad:
            found.update(name.encode())
            found.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def test_a_recomputed_block_has_the_same_gradients(model_of, small, example, drawn):
    """Dropout of the adapter included."""
    found = []
    for setting in (None, 1):
        model, batch = model_of("modern"), example(small("modern"))
        torch.manual_seed(3)
        batch = example(small("modern"))
        drawn(attach(model, cf.DoRA(rank=2, dropout=0.3), seed=0)).train()
        recompute.apply(model, setting)
        torch.manual_seed(4)
        loss(model, batch).backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.requires_grad})
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_and_b_depend_on_the_seed_alone(model_of):
    models = [attach(model_of("gpt2"), cf.LoRA(rank=2), seed=seed) for seed in (0, 0, 1)]
    factors = [[layer.factors()[0] for _, layer in adapted_layers(each)] for each in models]
    assert all(map(torch.equal, factors[0], factors[1]))
    assert not torch.equal(factors[0][0], factors[2][0])


def test_targets_and_a_new_head(model_of):
    adapter = cf.LoRA(rank=2, targets="q,down")
    model = attach(model_of("classifier"), adapter, learning=["head.project.weight"])
    names = {n.rpartition("blocks.0.")[2] for n, p in model.named_parameters() if p.requires_grad}
    names = {name for name in names if "blocks" not in name}
    assert names == {
        "attention.project.parts.q.A", "attention.project.parts.q.B",
        "feed_forward.down.parts.down.A", "feed_forward.down.parts.down.B", "head.project.weight",
    }  # fmt: skip


def test_unknown_targets_are_refused(model_of):
    with pytest.raises(
        ValueError, match="targets have 'gate', but the blocks of this model have q,"
    ):
        attach(model_of("gpt2"), cf.LoRA(targets="gate"))


def test_a_rank_above_a_matrix_is_refused(model_of):
    with pytest.raises(ValueError, match=r"rank is 999, but q of stack.blocks.0.attention.project"):
        attach(model_of("gpt2"), cf.LoRA(rank=999))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_loss_is_the_same(model_of, small, example, drawn):
    model, batch = model_of("gpt2"), example(small("gpt2"))
    drawn(attach(model, cf.DoRA(rank=2, base="int8"), seed=0))
    expected = loss(model, batch)
    compiled = torch.compile(model.loss, backend="aot_eager")
    sums, counts = compiled(batch)
    assert torch.allclose((sums / counts).sum(), expected, atol=1e-6)
