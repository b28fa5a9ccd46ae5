"""Building models from configs: every value selects its class, and tied weights are shared."""

import json
import re
from dataclasses import dataclass
from inspect import unwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer import config as c
from clearformer.builder import build, caches, outline
from clearformer.core import block, cache, heads, kernels, patterns
from clearformer.core.attention import Attention
from clearformer.core.positions import Position
from clearformer.extensions import heads as more_heads
from clearformer.extensions import layers
from clearformer.extensions import patterns as more_patterns
from clearformer.families import FAMILIES, preset
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.causal_xl import causal_form
from clearformer.kernels.fast import fast
from clearformer.kernels.vocabulary_loss import in_chunks, with_target_padded

PATTERNS = [
    c.Full(), c.Causal(), c.Local(3), c.Strided(4), c.Row(3), c.Fixed(4, 2), c.Summary(4, 2),
    c.Graph(((0, 1),), 2), c.Region((0, 4), (2, None)), c.Shifted(c.Row(3), 2),
    c.PerHead((c.Full(), c.Causal())), c.Causal() & c.Local(3), c.Full() - c.Local(1),
    c.Full() | (c.Causal() & c.Local(3)),
]  # fmt: skip
POSITIONS = {
    c.NoPosition(): (set(), set()),
    c.Learned(): ({"table.weight"}, set()),
    c.Sinusoidal(): (set(), set()),
    c.Grid(columns=4): ({"row.weight", "column.weight"}, set()),
    c.Rotary(base=99.0): (set(), set()),
    c.RelativeXL(): (set(), {"content", "distance", "project.weight"}),
    c.ALiBi(): (set(), set()),
}
ACTIVATIONS = {
    "relu": (block.FeedForward, F.relu),
    "gelu": (block.FeedForward, F.gelu),
    "gelu_tanh": (block.FeedForward, layers.gelu_tanh),
    "squared_relu": (block.FeedForward, layers.squared_relu),
    "swiglu": (block.GatedFeedForward, F.silu),
}


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2-small", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_gpt2_has_the_published_number_of_parameters(name, count):
    assert parameters(outline(preset(name))) == count


@pytest.mark.parametrize(
    ("name", "count"), [("bert-base", 109_482_240), ("bert-large", 335_141_888)]
)
def test_bert_with_its_pooler_has_the_published_number_of_parameters(name, count):
    model = outline(preset(name))
    of_the_heads = [
        parameter
        for part in (model.head.masked, model.head.sentence.project)
        for parameter in part.parameters()
        if parameter is not model.embedding.token.weight
    ]
    assert parameters(model) - sum(p.numel() for p in of_the_heads) == count


@pytest.mark.parametrize("size", ["small", "medium", "large", "xl"])
def test_gpt2_matches_published_sizes(size):
    config = preset(f"gpt2-{size}")
    assert (config.length, config.vocabulary, config.residual) == (1024, 50_257, "pre")
    model = outline(config)
    assert isinstance(model.stack.norm, torch.nn.LayerNorm)
    assert model.head.project.weight is model.embedding.token.weight
    assert config.resolved_head_width == 64


def test_masked_token_head_is_pretraining_without_next_sentence(small):
    alone = build(small("bert", head=c.MaskedToken()))
    both = build(small("bert"))
    assert isinstance(alone.head, type(both.head.masked))
    assert alone.head.project.weight is alone.embedding.token.weight
    assert alone(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 13)
    assert parameters(both) - parameters(alone) == parameters(both.head.sentence)


@pytest.mark.parametrize("family", FAMILIES)
def test_outline_has_shapes_of_model_on_meta_device(family, small):
    config = small(family)
    built, drawn = build(config), outline(config)
    assert all(parameter.is_meta for parameter in drawn.parameters())
    shapes = {name: p.shape for name, p in built.named_parameters()}
    assert {name: p.shape for name, p in drawn.named_parameters()} == shapes


@pytest.mark.parametrize("written", PATTERNS, ids=str)
def test_model_uses_patterns_of_config(written, small):
    config = small("generator", patterns=(written, c.Causal()))
    assert build(config).stack.patterns is config.patterns
    assert type(written).__module__ in (patterns.__name__, more_patterns.__name__)


KERNELS = {
    "fused": fast,
    "blockwise": blockwise,
    "explicit": kernels.explicit,
    "loop": kernels.loop,
}


@pytest.mark.parametrize("name", KERNELS)
def test_config_selects_kernel(name, small):
    model = build(small("sparse", kernel=name))
    assert unwrap(model.stack.blocks[0].attention.kernel) is KERNELS[name]
    read = c.model_from_json(c.to_json(small("sparse", kernel=name)))
    assert read.kernel == name


def test_vocabulary_losses_are_chunked(small):
    assert build(small("gpt2")).head.vocabulary_loss is in_chunks
    masked = build(small("bert")).head.masked
    assert (masked.vocabulary_loss, masked.select) == (in_chunks, with_target_padded)
    plain = heads.NextToken(nn.Linear(4, 7))
    assert plain.vocabulary_loss is heads.at_once


@pytest.mark.parametrize("written", PATTERNS, ids=str)
def test_patterns_round_trip_through_json(written, small):
    config = small("generator", patterns=(written,))
    assert c.model_from_json(c.to_json(config)) == config


@pytest.mark.parametrize("written", POSITIONS, ids=str)
def test_config_selects_position_scheme(written, small):
    """The scheme in the config is used by the model, which owns its parameters."""
    model = build(small("generator", position=written))
    assert model.embedding.scheme is written

    def learned(owner):
        return set() if owner.position is None else set(owner.position.state_dict())

    layers = [layer.attention for layer in model.stack.blocks]
    assert all(layer.scheme == causal_form(written) for layer in layers)
    assert (learned(model.embedding), learned(layers[0])) == POSITIONS[written]
    assert learned(layers[1]) == POSITIONS[written][1]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_config_selects_activation(name, small):
    kind, activation = ACTIVATIONS[name]
    feed_forward = build(small("gpt2", activation=name)).stack.blocks[0].feed_forward
    assert type(feed_forward) is kind
    assert feed_forward.activation is activation


@pytest.mark.parametrize("pool", ["mean", "max", "mean_max", "first", "pooler"])
def test_config_selects_pool(pool, small):
    head = build(small("classifier", head=c.Classifier(classes=5, pool=pool))).head
    if pool == "pooler":
        assert type(head.pool) is more_heads.Pooler
    else:
        module = heads if pool in ("mean", "first") else more_heads
        assert head.pool is getattr(module, f"{pool}_pool")
    assert head.project.out_features == 5


@pytest.mark.parametrize(("residual", "norm"), [("pre", nn.LayerNorm), ("post", nn.Identity)])
def test_final_norm_only_in_pre_norm_stack(residual, norm, small):
    for family in ("gpt2", "original"):
        model = build(small(family, residual=residual))
        stacks = [model.encoder, model.decoder] if family == "original" else [model.stack]
        for stack in stacks:
            assert type(stack.norm) is norm
            for layer in stack.blocks:
                assert layer.residual is {"pre": block.pre_norm, "post": block.post_norm}[residual]


def test_config_selects_norms_and_epsilons(small):
    model = build(
        small("modern", norm=c.LayerNorm(epsilon=1e-3), query_key_norm=c.RMSNorm(epsilon=1e-4))
    )
    layer = model.stack.blocks[0]
    assert (type(layer.attention_norm), layer.attention_norm.eps) == (nn.LayerNorm, 1e-3)
    assert (type(layer.attention.key_norm), layer.attention.key_norm.eps) == (layers.RMSNorm, 1e-4)
    assert layer.attention.query_norm is not layer.attention.key_norm
    assert layer.attention.query_norm.weight.shape == (4,)


def test_dropout_and_biases_are_applied_where_named(small):
    model = build(
        small(
            "gpt2",
            dropout=c.Dropout(embedding=0.1, attention=0.2, hidden=0.3, residual=0.4),
            biases=c.Biases(attention=False, attention_output=True, feed_forward=False, head=True),
        )
    )
    layer = model.stack.blocks[1]
    assert model.embedding.dropout.p == 0.1
    assert layer.attention.dropout == 0.2
    assert layer.feed_forward.dropout.p == 0.3
    assert layer.dropout.p == 0.4
    assert layer.attention.project.bias is None
    assert layer.attention.output.bias is not None
    assert layer.feed_forward.up.bias is layer.feed_forward.down.bias is None
    assert model.head.project.bias is not None
    classifier = build(small("classifier", dropout=c.Dropout(residual=0.4)))
    assert classifier.head.dropout.p == 0.4


def test_tied_weights_share_parameter(small):
    gpt2, bert, original = (build(small(family)) for family in ("gpt2", "bert", "original"))
    assert gpt2.head.project.weight is gpt2.embedding.token.weight
    assert bert.head.masked.project.weight is bert.embedding.token.weight
    assert bert.head.masked.project.bias is not None
    assert original.source_embedding.token.weight is original.head.project.weight
    assert original.target_embedding.token.weight is original.head.project.weight
    untied = build(small("gpt2", head=c.NextToken(tied=False, cap=20.0)))
    assert untied.head.project.weight is not untied.embedding.token.weight
    assert untied.head.cap == 20.0


def test_embedding_scale_norm_and_segments(small):
    original, bert = build(small("original")), build(small("bert", segments=3))
    assert original.source_embedding.scale == original.target_embedding.scale == 4.0
    assert bert.embedding.norm.eps == 1e-12
    assert bert.embedding.segment.weight.shape == (3, 16)
    assert build(small("gpt2")).embedding.segment is None


def test_encoder_decoder_stacks(small):
    model = build(small("original", layers=1, decoder_layers=3, position=c.Rotary()))
    assert (len(model.encoder.blocks), len(model.decoder.blocks)) == (1, 3)
    assert model.encoder.patterns == (patterns.Full(),)
    assert model.decoder.patterns == (patterns.Causal(),)
    layer = model.decoder.blocks[0]
    # Positions of two sequences do not compare.
    assert layer.attention.scheme == c.Rotary()
    assert layer.cross_attention.scheme == c.NoPosition()


BEHIND = {
    c.Causal(): True,
    c.Local(window=3) & c.Causal(): True,
    c.Causal() | c.Full(): False,
    c.PerHead(patterns=(c.Causal(), c.Causal() & c.Strided(stride=2))): True,
    c.PerHead(patterns=(c.Causal(), c.Full())): False,
    c.Local(window=3): False,
}


@pytest.mark.parametrize("pattern", BEHIND, ids=str)
def test_causal_patterns_use_causal_form_of_relative_xl(pattern, small):
    scheme = causal_form(c.RelativeXL()) if BEHIND[pattern] else c.RelativeXL()
    model = build(small("xl", patterns=(pattern,)))
    assert model.stack.blocks[0].attention.scheme == scheme
    pair = build(small("original", patterns=(pattern,), position=c.RelativeXL()))
    assert pair.encoder.blocks[0].attention.scheme == c.RelativeXL()
    assert pair.decoder.blocks[0].attention.scheme == scheme


def test_every_layer_has_a_cache(small):
    assert [type(each) for each in caches(small("modern"))] == [cache.KVCache] * 2
    memories = caches(small("xl", cache=c.HiddenMemory(length=7)))
    assert [(type(each), each.capacity) for each in memories] == [(cache.HiddenMemory, 7)] * 2
    assert len(caches(small("original", decoder_layers=3))) == 3


def test_encoder_has_no_cache(small):
    message = "bert-base looks at whole sequences and keeps no cache"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        caches(small("bert"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"heads": 3},
            "width is 16 and heads is 3, but the heads must divide the width: use 2 heads",
        ),
        (
            {"width": 15, "heads": 3, "position": c.Sinusoidal()},
            "sinusoidal positions need an even width, got 15",
        ),
    ],
)
def test_rejects_config_that_cannot_be_built(changes, message, small):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build(small("generator", **changes))


def test_outline_does_not_import_torch_dynamo():
    """Torch imports it to draw normal numbers on the meta device, which is slow."""
    import subprocess
    import sys

    script = (
        "import sys; from clearformer.builder import outline;"
        "from clearformer.families import gpt2;"
        "outline(gpt2('small')); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (c.MaskedToken(), heads.MaskedToken),
        (c.Features(pool="pooler"), more_heads.Features),
        (c.Features(), more_heads.Features),
    ],
)
def test_heads_of_encoder_only_model(head, kind, small):
    model = build(small("bert", head=head))
    assert type(model.head) is kind
    tokens = torch.randint(13, (2, 5))
    assert model(tokens).shape == ((2, 5, 13) if kind is heads.MaskedToken else (2, 16))


# --- heads of any width, and attention without an output matrix ----------------------------------

HEADS = {
    "wide": {"head_width": 16},  # each head as wide as the model
    "narrow": {"head_width": 2},
    "no output": {"attention_output": "none"},
}


@pytest.mark.parametrize("family", ["gpt2", "modern", "xl", "original"])
@pytest.mark.parametrize("name", HEADS)
def test_head_width_and_output_variants_train_and_decode(name, family, small, scrambled, example):
    config = small(family, key_heads=None, **HEADS[name])
    assert c.model_from_json(c.to_json(config)) == config
    model = scrambled(build(config))
    plain = parameters(outline(small(family, key_heads=None)))
    layers = [each for each in model.modules() if isinstance(each, Attention)]
    # A head of D columns has 4 D E weights and, with biases, 3 D more; the output's has E.
    expected = {"wide": 4, "narrow": 0.5}.get(name)
    for layer in layers:
        assert layer.project.weight.shape[0] == 3 * 4 * config.resolved_head_width
        if expected is None:
            assert not list(layer.output.parameters())
        else:
            assert layer.output.weight.numel() == 16 * 16 * expected
    if name == "no output":
        biased = config.biases.attention_output
        assert plain - parameters(model) == len(layers) * (16 * 16 + 16 * biased)
    sums, count = model.loss(example(config))
    (sums.sum() / count.sum()).backward()
    assert all(layer.project.weight.grad.abs().sum() > 0 for layer in layers)
    if family == "original":
        return
    model.eval()
    tokens = torch.randint(13, (2, 8))
    whole, memory, parts = model(tokens), caches(config), []
    with torch.no_grad():
        for part in tokens.split((5, 1, 2), dim=1):
            parts.append(model(part, caches=memory))
            for each in memory:
                each.advance()
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-5)


# --- a position scheme from outside the package --------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LearnedDistance(Position):
    """A learned penalty for each distance up to `farthest`: what a user would write."""

    farthest: int

    def attention_parameters(self, width, heads, head_width):
        return nn.Embedding(self.farthest + 1, heads)

    def score(self, q, k, learned):
        queries, keys = q.shape[2], k.shape[2]
        at_q, at_k = torch.arange(keys - queries, keys), torch.arange(keys)
        distance = (at_q[:, None] - at_k).abs().clamp(max=self.farthest)
        return q, learned(distance).permute(2, 0, 1)  # (H, Q, K)


def test_custom_position_scheme_is_one_class(small, scrambled, example):
    config = small("gpt2", position=LearnedDistance(farthest=5))
    assert c.model_from_json(json.loads(json.dumps(c.to_json(config)))) == config
    model = scrambled(build(config))
    names = [name for name, _ in model.named_parameters() if "position" in name]
    assert names == [f"stack.blocks.{n}.attention.position.weight" for n in range(2)]
    sums, _ = model.loss(example(config))
    sums.sum().backward()
    assert model.stack.blocks[0].attention.position.weight.grad.any()
    tokens, memory = torch.randint(13, (2, 6)), caches(config)
    first = model(tokens[:, :4], caches=memory)
    for each in memory:
        each.advance()
    parts = torch.cat((first, model(tokens[:, 4:], caches=memory)), dim=1)
    torch.testing.assert_close(parts, model(tokens), atol=1e-5, rtol=1e-5)
    again = build(config)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(tokens), model(tokens))
