"""Numerical parity with PyTorch and transformers on shared random weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer import config as c
from clearformer.builder import build
from clearformer.core.attention import Attention
from clearformer.core.block import Block, DecoderBlock, FeedForward, post_norm, pre_norm
from clearformer.core.cache import NO_CACHE
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full

WIDTH, HEADS, HIDDEN = 16, 4, 24
ATTENTION_MASK = torch.arange(7) < torch.tensor([[7], [4]])  # the second sequence is padded


def assert_near(given, expected):
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


def each(theirs, change):
    """A name or a list of names, each changed."""
    return [change(name) for name in theirs] if isinstance(theirs, list) else change(theirs)


def renamed(state, names):
    """Our weights from theirs, by a table from our names to theirs; lists are concatenated."""
    weights = {ours: each(theirs, state.__getitem__) for ours, theirs in names.items()}
    return {name: torch.cat(w) if isinstance(w, list) else w for name, w in weights.items()}


def with_biases(names):
    """A table of modules as a table of their weights and biases."""
    return {
        f"{ours}.{kind}": each(theirs, lambda name, kind=kind: f"{name}.{kind}")
        for ours, theirs in names.items()
        for kind in ("weight", "bias")
    }


# --- torch.nn ------------------------------------------------------------------------------

ATTENTION = {
    "project.weight": "in_proj_weight",
    "project.bias": "in_proj_bias",
    "output.weight": "out_proj.weight",
    "output.bias": "out_proj.bias",
}


@pytest.mark.parametrize("pattern", [Full(), Causal()])
def test_parity_with_torch_multihead_attention(pattern, scrambled):
    theirs = scrambled(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    ours = Attention(WIDTH, HEADS)
    ours.load_state_dict(renamed(theirs.state_dict(), ATTENTION))
    x = torch.randn(2, 7, WIDTH)
    expected, _ = theirs(
        x,
        x,
        x,
        key_padding_mask=~ATTENTION_MASK,
        attn_mask=~pattern.table(7, 7),
        need_weights=False,
    )
    assert_near(ours(x, Mask(pattern, ATTENTION_MASK)), expected)


def test_parity_with_torch_multihead_cross_attention(scrambled):
    theirs = scrambled(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    ours = Attention(WIDTH, HEADS)
    ours.load_state_dict(renamed(theirs.state_dict(), ATTENTION))
    x, context = torch.randn(2, 3, WIDTH), torch.randn(2, 7, WIDTH)
    expected, _ = theirs(x, context, context, key_padding_mask=~ATTENTION_MASK, need_weights=False)
    assert_near(ours(x, Mask(Full(), ATTENTION_MASK), ours.freeze(context)), expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("activation", "theirs_activation"), [(F.relu, "relu"), (F.gelu, "gelu")])
@pytest.mark.parametrize("residual", [post_norm, pre_norm])
def test_parity_with_torch_encoder_layer(
    residual, activation, theirs_activation, training, scrambled
):
    theirs = nn.TransformerEncoderLayer(
        WIDTH,
        HEADS,
        HIDDEN,
        dropout=0.0,
        activation=theirs_activation,
        batch_first=True,
        norm_first=residual is pre_norm,
    )
    theirs = scrambled(theirs).train(training)
    norms = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
    ours = Block(Attention(WIDTH, HEADS), FeedForward(WIDTH, HIDDEN, activation), norms, residual)
    names = {f"attention.{a}": f"self_attn.{b}" for a, b in ATTENTION.items()} | with_biases(
        {
            "attention_norm": "norm1",
            "feed_forward_norm": "norm2",
            "feed_forward.up": "linear1",
            "feed_forward.down": "linear2",
        }
    )
    ours.load_state_dict(renamed(theirs.state_dict(), names))
    x = torch.randn(2, 7, WIDTH)
    given, expected = (
        ours(x, Mask(Full(), ATTENTION_MASK)),
        theirs(x, src_key_padding_mask=~ATTENTION_MASK),
    )
    # torch's fast path (in evaluation) leaves zeros where the padding is.
    assert_near(given[ATTENTION_MASK], expected[ATTENTION_MASK])


@pytest.mark.parametrize("residual", [post_norm, pre_norm])
def test_parity_with_torch_decoder_layer(residual, scrambled):
    theirs = nn.TransformerDecoderLayer(
        WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True, norm_first=residual is pre_norm
    )
    theirs = scrambled(theirs)
    ours = DecoderBlock(
        Attention(WIDTH, HEADS),
        Attention(WIDTH, HEADS),
        FeedForward(WIDTH, HIDDEN),
        tuple(nn.LayerNorm(WIDTH) for _ in range(3)),
        residual,
    )
    names = (
        {f"attention.{a}": f"self_attn.{b}" for a, b in ATTENTION.items()}
        | {f"cross_attention.{a}": f"multihead_attn.{b}" for a, b in ATTENTION.items()}
        | with_biases(
            {
                "attention_norm": "norm1",
                "cross_attention_norm": "norm2",
                "feed_forward_norm": "norm3",
                "feed_forward.up": "linear1",
                "feed_forward.down": "linear2",
            }
        )
    )
    ours.load_state_dict(renamed(theirs.state_dict(), names))
    x, context = torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH)
    expected = theirs(
        x, context, tgt_mask=~Causal().table(5, 5), memory_key_padding_mask=~ATTENTION_MASK
    )
    source = ours.cross_attention.freeze(context)
    assert_near(ours(x, Mask(Causal()), NO_CACHE, Mask(Full(), ATTENTION_MASK), source), expected)


# --- transformers --------------------------------------------------------------------------


@pytest.fixture(scope="session")
def transformers():
    return pytest.importorskip("transformers")


def by_layer(names, layers=2):
    """A table for one layer, `{}` for its number, as a table for all."""
    return {
        ours.format(layer): each(theirs, lambda name, layer=layer: name.format(layer))
        for layer in range(layers)
        for ours, theirs in names.items()
    }


def test_parity_with_transformers_gpt2(transformers, small, scrambled):
    config = small("gpt2")
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=config.vocabulary,
            n_positions=config.length,
            n_embd=config.width,
            n_layer=config.layers,
            n_head=config.heads,
            n_inner=config.hidden,
        )
    )
    theirs = scrambled(theirs).eval()
    layers = {
        "stack.blocks.{}.attention_norm": "transformer.h.{}.ln_1",
        "stack.blocks.{}.attention.project": "transformer.h.{}.attn.c_attn",
        "stack.blocks.{}.attention.output": "transformer.h.{}.attn.c_proj",
        "stack.blocks.{}.feed_forward_norm": "transformer.h.{}.ln_2",
        "stack.blocks.{}.feed_forward.up": "transformer.h.{}.mlp.c_fc",
        "stack.blocks.{}.feed_forward.down": "transformer.h.{}.mlp.c_proj",
    }
    names = with_biases({**by_layer(layers), "stack.norm": "transformer.ln_f"}) | {
        "embedding.token.weight": "transformer.wte.weight",
        "embedding.position.table.weight": "transformer.wpe.weight",
        "head.project.weight": "transformer.wte.weight",
    }
    state = renamed(theirs.state_dict(), names)
    for name, weight in state.items():
        if any(part in name for part in ("attention.project.w", "output.w", "up.w", "down.w")):
            state[name] = weight.T  # their matrices act from the right
    ours = build(config)
    ours.load_state_dict(state)
    tokens = torch.randint(config.vocabulary, (2, 7))
    with torch.no_grad():
        assert_near(ours(tokens), theirs(tokens).logits)
        # Left padding: transformers needs explicit positions, ours follow from the mask.
        attention_mask = ATTENTION_MASK.flip(1)
        places = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        expected = theirs(tokens, attention_mask=attention_mask.long(), position_ids=places).logits
        assert_near(ours(tokens, attention_mask)[attention_mask], expected[attention_mask])


def test_parity_with_transformers_bert(transformers, small, scrambled):
    config = small("bert")
    theirs = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=config.vocabulary,
            max_position_embeddings=config.length,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.hidden,
        )
    )
    theirs = scrambled(theirs).eval()
    layer = "bert.encoder.layer.{}."
    layers = {
        "stack.blocks.{}.attention.project": [
            layer + f"attention.self.{name}" for name in ("query", "key", "value")
        ],
        "stack.blocks.{}.attention.output": layer + "attention.output.dense",
        "stack.blocks.{}.attention_norm": layer + "attention.output.LayerNorm",
        "stack.blocks.{}.feed_forward.up": layer + "intermediate.dense",
        "stack.blocks.{}.feed_forward.down": layer + "output.dense",
        "stack.blocks.{}.feed_forward_norm": layer + "output.LayerNorm",
    }
    modules = {
        **by_layer(layers),
        "embedding.norm": "bert.embeddings.LayerNorm",
        "head.masked.transform": "cls.predictions.transform.dense",
        "head.masked.norm": "cls.predictions.transform.LayerNorm",
        "head.sentence.pool.transform": "bert.pooler.dense",
        "head.sentence.project": "cls.seq_relationship",
    }
    names = with_biases(modules) | {
        "embedding.token.weight": "bert.embeddings.word_embeddings.weight",
        "embedding.position.table.weight": "bert.embeddings.position_embeddings.weight",
        "embedding.segment.weight": "bert.embeddings.token_type_embeddings.weight",
        "head.masked.project.weight": "bert.embeddings.word_embeddings.weight",
        "head.masked.project.bias": "cls.predictions.bias",
    }
    ours = build(config).eval()
    ours.load_state_dict(renamed(theirs.state_dict(), names))
    tokens = torch.randint(config.vocabulary, (2, 7))
    segments = torch.randint(2, (2, 7))
    with torch.no_grad():
        words, sentence = ours(tokens, ATTENTION_MASK, segments)
        expected = theirs(tokens, attention_mask=ATTENTION_MASK.long(), token_type_ids=segments)
    assert_near(words[ATTENTION_MASK], expected.prediction_logits[ATTENTION_MASK])
    assert_near(sentence, expected.seq_relationship_logits)


@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_parity_with_transformers_llama(transformers, key_heads, small, scrambled):
    config = small(
        "modern", key_heads=key_heads, query_key_norm=None, position=c.Rotary(base=500.0)
    )
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocabulary,
            max_position_embeddings=config.length,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=key_heads,
            intermediate_size=config.hidden,
            rms_norm_eps=config.norm.epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            tie_word_embeddings=False,
        )
    )
    theirs = scrambled(theirs).eval()
    layer = "model.layers.{}."
    layers = {
        "stack.blocks.{}.attention_norm.weight": layer + "input_layernorm.weight",
        "stack.blocks.{}.attention.project.weight": [
            layer + f"self_attn.{name}_proj.weight" for name in ("q", "k", "v")
        ],
        "stack.blocks.{}.attention.output.weight": layer + "self_attn.o_proj.weight",
        "stack.blocks.{}.feed_forward_norm.weight": layer + "post_attention_layernorm.weight",
        "stack.blocks.{}.feed_forward.up.weight": [
            layer + f"mlp.{name}_proj.weight" for name in ("gate", "up")
        ],
        "stack.blocks.{}.feed_forward.down.weight": layer + "mlp.down_proj.weight",
    }
    names = {
        **by_layer(layers),
        "embedding.token.weight": "model.embed_tokens.weight",
        "stack.norm.weight": "model.norm.weight",
        "head.project.weight": "lm_head.weight",
    }
    ours = build(config)
    ours.load_state_dict(renamed(theirs.state_dict(), names))
    tokens = torch.randint(config.vocabulary, (2, 7))
    with torch.no_grad():
        assert_near(ours(tokens), theirs(tokens).logits)
        padded = (
            ours(tokens, ATTENTION_MASK),
            theirs(tokens, attention_mask=ATTENTION_MASK.long()).logits,
        )
        assert_near(padded[0][ATTENTION_MASK], padded[1][ATTENTION_MASK])
