"""Whole models: cached equals uncached, segments equal whole sequences, padding has no effect."""

import dataclasses

import pytest
import torch

from clearformer import config as c
from clearformer.builder import build, caches
from clearformer.core.block import direct
from clearformer.core.cache import HiddenMemory
from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, PairBatch
from clearformer.families import FAMILIES
from clearformer.training.recompute import recompute

POSITIONS = {
    "none": c.NoPosition(),
    "learned": c.Learned(),
    "sinusoidal": c.Sinusoidal(),
    "rotary": c.Rotary(),
    "relative": c.RelativeXL(),
    "alibi": c.ALiBi(),
}
PATTERNS = {
    "causal": (c.Causal(),),
    "local": (c.Causal() & c.Local(window=3),),
    "strided": (c.Causal() & c.Strided(stride=3),),
    "fixed": (c.Causal() & c.Fixed(stride=3, summary=1),),
    "in turn": (c.Causal() & c.Local(window=3), c.Causal() & c.Strided(stride=3)),
}
LENGTH = 9


def continued(model, tokens, history, chunks, attention_mask=None):
    """Logits of `tokens` read piece by piece with the caches `history`."""
    pieces, end = [], 0
    for piece in tokens.split(chunks, dim=1):
        end += piece.shape[1]
        seen = None if attention_mask is None else attention_mask[:, :end]
        pieces.append(model(piece, seen, caches=history))
        for cache in history:
            cache.advance()
    return torch.cat(pieces, dim=1)


def assert_near(given, expected):
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-4)


# --- the past ------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [[1] * LENGTH, [4, 1, 3, 1], [LENGTH]], ids=str)
@pytest.mark.parametrize("patterns", PATTERNS)
@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_cached_equals_uncached(position, patterns, chunks, small, scrambled):
    config = small("generator", position=POSITIONS[position], patterns=PATTERNS[patterns])
    model = scrambled(build(config))
    tokens = torch.randint(config.vocabulary, (2, LENGTH))
    cached = continued(model, tokens, caches(config), chunks)
    assert_near(cached, model(tokens))


@pytest.mark.parametrize("patterns", PATTERNS)
@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_left_padded_batch_with_cache_matches_single_sequences(
    position, patterns, small, scrambled
):
    config = small("modern", position=POSITIONS[position], patterns=PATTERNS[patterns])
    model = scrambled(build(config))
    lengths = [9, 5, 4]
    alone = [torch.randint(config.vocabulary, (1, length)) for length in lengths]
    tokens = torch.randint(config.vocabulary, (3, LENGTH))
    for row, sequence in enumerate(alone):
        tokens[row, -lengths[row] :] = sequence
    attention_mask = torch.arange(LENGTH) >= LENGTH - torch.tensor(lengths)[:, None]
    history = caches(config)
    together = continued(model, tokens, history, [4, 1, 1, 2, 1], attention_mask)
    for row, sequence in enumerate(alone):
        assert_near(together[row, -lengths[row] :], model(sequence)[0])


@pytest.mark.parametrize("chunks", [[1] * 7, [3, 1, 3]], ids=str)
@torch.no_grad()
def test_cached_decoding_with_source_equals_teacher_forcing(chunks, small, scrambled):
    config = small("original", decoder_layers=3)
    model = scrambled(build(config))
    source, target = torch.randint(config.vocabulary, (2, 2, 7))
    source_attention_mask = torch.arange(7) < torch.tensor([[7], [4]])
    encoded = model.encode(source, source_attention_mask)
    history = caches(config)
    assert len(history) == 3
    pieces = []
    for piece in target.split(chunks, dim=1):
        pieces.append(model.head(model.hidden(piece, encoded, caches=history)))
        for cache in history:
            cache.advance()
    assert_near(torch.cat(pieces, dim=1), model(source, target, source_attention_mask))


@pytest.mark.parametrize("chunks", [[4, 4, 4], [5, 1, 6], [1] * 12], ids=str)
@pytest.mark.parametrize("position", ["relative", "rotary", "alibi", "none"])
@torch.no_grad()
def test_segments_with_enough_memory_equal_whole_sequence(position, chunks, small, scrambled):
    config = small("xl", position=POSITIONS[position])
    model = scrambled(build(config))
    tokens = torch.randint(config.vocabulary, (2, 12))
    memories = caches(config)
    assert all(isinstance(memory, HiddenMemory) for memory in memories)
    assert_near(continued(model, tokens, memories, chunks), model(tokens))


@torch.no_grad()
def test_receptive_field_grows_by_one_memory_per_layer(small, scrambled):
    """With a memory of 2 and segments of 2, two layers see 2 * 2 places before the segment."""
    config = small("xl", cache=c.HiddenMemory(length=2), layers=2)
    model = scrambled(build(config))
    tokens = torch.randint(config.vocabulary, (1, 12))

    def last_logits(tokens):
        return continued(model, tokens, caches(config), 2)[:, -1]

    for place in range(12):
        other = tokens.clone()
        other[0, place] = (other[0, place] + 1) % config.vocabulary
        reached = not torch.equal(last_logits(other), last_logits(tokens))
        assert reached == (place >= 12 - 2 - 4)


def test_gradients_of_a_segment_stop_at_the_memory(small, scrambled, gradients):
    """The memory is constant: only tokens of the second segment get a gradient."""
    config = small("xl", head=c.NextToken(tied=False))
    model = scrambled(build(config))
    first, second = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[4, 5, 6, 7]])
    memories = caches(config)
    model(first, caches=memories)
    for memory in memories:
        memory.advance()
    total, count = model.loss(Batch(second, second), memories)
    total.sum().backward()
    touched = model.embedding.token.weight.grad.any(dim=1).nonzero().flatten().tolist()
    assert touched == [4, 5, 6, 7]
    assert count.item() == 4


# --- padding -------------------------------------------------------------------------------

LENGTHS = [6, 4, 1]


def cut(batch, index, length):
    """One sequence of a batch, alone and without any padding."""

    def pick(value):
        if isinstance(value, tuple):
            return tuple(pick(item) for item in value)
        if value is None:
            return None
        alone = value[index : index + 1]
        return alone if value.dim() == 1 else alone[:, :length]

    fields = dataclasses.fields(batch)
    return type(batch)(**{field.name: pick(getattr(batch, field.name)) for field in fields})


def place(values, lengths, side, filling):
    """Rows of `values` cut to `lengths`, `filling` (same shape) before or after: (B, T)."""
    width = values.shape[1]
    columns = torch.arange(width)
    sizes = torch.tensor(lengths)[:, None]
    attention_mask = columns < sizes if side == "right" else columns >= width - sizes
    placed = filling.clone()
    placed[attention_mask] = torch.cat([row[:n] for row, n in zip(values, lengths, strict=True)])
    return placed, attention_mask


def padded(batch, lengths, side, vocabulary):
    """The same sequences as a batch, padded with random tokens without targets."""

    def fill(values, count):
        return place(values, lengths, side, torch.randint(count, values.shape))

    def without_targets(targets):
        if isinstance(targets, tuple):
            return tuple(without_targets(each) for each in targets)
        if targets.dim() == 1:
            return targets
        return place(targets, lengths, side, torch.full_like(targets, IGNORE))[0]

    if isinstance(batch, PairBatch):
        source, source_attention_mask = fill(batch.source, vocabulary)
        target, target_attention_mask = fill(batch.target, vocabulary)
        targets = without_targets(batch.targets)
        return PairBatch(source, target, targets, source_attention_mask, target_attention_mask)
    tokens, attention_mask = fill(batch.tokens, vocabulary)
    segments = None if batch.segments is None else fill(batch.segments, 2)[0]
    return Batch(tokens, without_targets(batch.targets), attention_mask, segments)


POOLED = {
    f"classifier, {pool}": ("classifier", {"head": c.Classifier(classes=3, pool=pool)})
    for pool in ("mean", "max", "first", "pooler")
}
EVERY = {**{family: (family, {}) for family in FAMILIES}, **POOLED}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", EVERY)
def test_padding_has_no_effect(name, side, small, scrambled, example, logits, gradients):
    """A padded batch equals its unpadded sequences, in value and in gradient."""
    family, changes = EVERY[name]
    config = small(family, **changes)
    model = scrambled(build(config))
    batch = example(config, size=3, length=6)
    alone = [cut(batch, index, length) for index, length in enumerate(LENGTHS)]
    together, otherwise = (padded(batch, LENGTHS, side, config.vocabulary) for _ in range(2))

    for index, (sequence, length) in enumerate(zip(alone, LENGTHS, strict=True)):
        for whole, single in zip(logits(model, together), logits(model, sequence), strict=True):
            real = slice(None, length) if side == "right" else slice(whole.shape[1] - length, None)
            given = whole[index] if whole.dim() == 2 else whole[index, real]
            assert_near(given, single[0])

    expected = gradients(model, *alone)
    for padding in (together, otherwise):
        given = gradients(model, padding)
        for name, gradient in given.items():
            assert_near(gradient, expected[name])


@pytest.mark.parametrize("name", EVERY)
def test_row_of_padding_only_stays_finite(name, small, scrambled, example, logits, gradients):
    family, changes = EVERY[name]
    config = small(family, **changes)
    model = scrambled(build(config))
    batch = padded(example(config, size=3, length=6), [6, 0, 4], "right", config.vocabulary)
    assert all(values.isfinite().all() for values in logits(model, batch))
    assert all(gradient.isfinite().all() for gradient in gradients(model, batch).values())


def test_head_of_cached_step_uses_padding_of_current_tokens(small, scrambled):
    config = small("generator", head=c.Classifier(classes=3, pool="mean"))
    model = scrambled(build(config))
    tokens = torch.randint(config.vocabulary, (2, 6))
    attention_mask = torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]).bool()
    history = caches(config)
    with torch.no_grad():
        continued_hidden = []
        for piece, end in zip(tokens.split(3, dim=1), (3, 6), strict=True):
            length = history[0].length
            continued_hidden.append(model.hidden(piece, attention_mask[:, :end], caches=history))
            pooled = model.head(continued_hidden[-1], attention_mask[:, length:end])
            assert_near(model(piece, attention_mask[:, :end], caches=history), pooled)
            for cache in history:
                cache.advance()
        assert_near(torch.cat(continued_hidden, dim=1), model.hidden(tokens, attention_mask))


# --- a set, not a sequence -----------------------------------------------------------------


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_without_positions_model_is_permutation_equivariant(position, small, scrambled):
    config = small("classifier", position=POSITIONS[position])
    model = scrambled(build(config))
    tokens = torch.randint(config.vocabulary, (2, LENGTH))
    order = torch.randperm(LENGTH)
    permuted, expected = model.hidden(tokens[:, order]), model.hidden(tokens)[:, order]
    if position == "none":
        assert_near(permuted, expected)
        assert_near(model(tokens[:, order]), model(tokens))
    else:
        assert not torch.allclose(permuted, expected, atol=1e-3)


# --- what is run from outside --------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_recomputation_does_not_change_gradients(family, small, scrambled, example, gradients):
    rates = c.Dropout(embedding=0.1, attention=0.2, hidden=0.1, residual=0.2)
    config = small(family, dropout=rates)
    model = scrambled(build(config)).train()
    batch = example(config)

    def run(how):
        stacks = [model.encoder, model.decoder] if hasattr(model, "encoder") else [model.stack]
        for stack in stacks:
            stack.runs = (how,)
        torch.manual_seed(1)
        return gradients(model, batch)

    kept, again = run(direct), run(recompute)
    assert all(torch.equal(kept[name], again[name]) for name in kept)


def test_model_loss_equals_head_loss(small, example, logits):
    for family in FAMILIES:
        config = small(family)
        model, batch = build(config).eval(), example(config)
        totals, counts = model.loss(batch)
        targets = batch.targets if isinstance(batch.targets, tuple) else (batch.targets,)
        for total, count, values, wanted in zip(
            totals, counts, logits(model, batch), targets, strict=True
        ):
            rows = values.flatten(0, -2).log_softmax(dim=-1)
            picked = rows[torch.arange(len(rows)), wanted.flatten()]
            torch.testing.assert_close(total, -picked.sum())
            assert count == wanted.numel()


def test_rejects_wrong_number_of_caches(small):
    config = small("gpt2")
    history = caches(config)[:1]
    with (
        torch.no_grad(),
        pytest.raises(ValueError, match=r"^got 1 caches for 2 layers: there must be one for each$"),
    ):
        build(config)(torch.zeros(1, 4, dtype=torch.long), caches=history)
