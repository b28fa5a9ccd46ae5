"""Writers small enough to be compared with the whole model, token for token; and transformers'
MarianMTModel with random weights, beside ours with the same, copied by hand.
"""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from clearformer import config as c
from clearformer.build import build
from clearformer.generate.writer import Writer


@pytest.fixture(scope="session")
def writer(small, scrambled):
    """A writer of ids with random weights, its family's numbers changed."""

    def make(family="gpt2", tokenizer=None, **changes):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            config = small(family, **changes)
            return Writer(scrambled(build(config)).eval(), config, tokenizer)

    return make


@pytest.fixture(scope="session")
def uncached():
    """The most likely continuation by the whole model, without any past."""

    @torch.inference_mode()
    def greedy(writer, prompt, most):
        text = list(prompt)
        for _ in range(most):
            text.append(int(writer.model(torch.tensor([text]))[0, -1].argmax()))
        return text[len(prompt) :]

    return greedy


# --- translation ---------------------------------------------------------------------------

VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN = 301, 16, 2, 4, 24
PAD, END = 300, 0  # Marian's: targets begin with padding


def marian_config(**changes):
    numbers = {
        "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS,
        "decoder_layers": LAYERS, "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS, "encoder_ffn_dim": HIDDEN, "decoder_ffn_dim": HIDDEN,
        "max_position_embeddings": 64, "activation_function": "relu", "scale_embedding": True,
        "pad_token_id": PAD, "decoder_start_token_id": PAD, "eos_token_id": END,
        "forced_eos_token_id": None, "dropout": 0.0, "attn_implementation": "eager",
    }  # fmt: skip
    return MarianConfig(**{**numbers, **changes})


def our_config(marian):
    return c.Seq2SeqConfig(
        name="original-marian",
        vocabulary=marian.vocab_size,
        length=marian.max_position_embeddings,
        layers=marian.encoder_layers,
        decoder_layers=marian.decoder_layers,
        width=marian.d_model,
        heads=marian.encoder_attention_heads,
        hidden=marian.encoder_ffn_dim,
        residual="post",
        activation={"relu": "relu", "swish": "silu"}[marian.activation_function],
        position=c.Sinusoidal(order="halves"),
        patterns=(c.Causal(),),
        head=c.NextToken(tied=True),
        past=c.KVCache(),
        embedding_scale="sqrt_width",
        biases=c.Biases(head=True),
        init="xavier",
        marks=c.Marks(start=marian.decoder_start_token_id, end=marian.eos_token_id),
    )


def names(layers, decoder_layers):
    """Our name to theirs; a list lies end to end."""
    table = {
        "source_embedding.token.weight": "model.shared.weight",
        "head.project.bias": "final_logits_bias",
    }
    for side, count in (("encoder", layers), ("decoder", decoder_layers)):
        for i in range(count):
            ours, theirs = f"{side}.blocks.{i}", f"model.{side}.layers.{i}"
            attentions = {"attention": "self_attn"}
            if side == "decoder":
                attentions["cross_attention"] = "encoder_attn"
            for mine, other in attentions.items():
                for kind in ("weight", "bias"):
                    table[f"{ours}.{mine}.project.{kind}"] = [
                        f"{theirs}.{other}.{part}.{kind}" for part in ("q_proj", "k_proj", "v_proj")
                    ]
                    table[f"{ours}.{mine}.output.{kind}"] = f"{theirs}.{other}.out_proj.{kind}"
                    table[f"{ours}.{mine}_norm.{kind}"] = f"{theirs}.{other}_layer_norm.{kind}"
            for kind in ("weight", "bias"):
                table[f"{ours}.feed_forward.up.{kind}"] = f"{theirs}.fc1.{kind}"
                table[f"{ours}.feed_forward.down.{kind}"] = f"{theirs}.fc2.{kind}"
                table[f"{ours}.feed_forward_norm.{kind}"] = f"{theirs}.final_layer_norm.{kind}"
    return table


def copied(theirs):
    """Our model with the weights of a MarianMTModel."""
    config = our_config(theirs.config)
    model = build(config)
    state = theirs.state_dict()
    found = {}
    for ours, other in names(config.layers, config.decoder_layers).items():
        if isinstance(other, list):
            found[ours] = torch.cat([state[name] for name in other])
        else:
            found[ours] = state[other].flatten() if ours.endswith(".bias") else state[other]
    own = dict(model.named_parameters())
    assert own.keys() == found.keys()
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(found[name])
    return model.eval(), config


@pytest.fixture
def marian():
    """(theirs, ours, our config) for a seed: sentences that end by themselves, at many lengths."""

    def make(seed=0, ending=2.0, **changes):
        torch.manual_seed(seed)
        theirs = MarianMTModel(marian_config(**changes)).eval()
        with torch.no_grad():
            for name, parameter in theirs.named_parameters():
                if "embed_positions" in name:
                    continue  # sines and cosines, and no weights
                if parameter.dim() == 2:
                    parameter.normal_(std=3 * parameter.shape[1] ** -0.5)
                else:
                    parameter.add_(0.2 * torch.randn_like(parameter))
            theirs.model.shared.weight.normal_(std=0.25)
        theirs.final_logits_bias.normal_(std=0.5)
        theirs.final_logits_bias[0, END] += ending
        return theirs, *copied(theirs)

    return make


@pytest.fixture
def sources():
    """Random sources of different lengths, each closed by the end mark: (B, S) and keep."""

    def make(lengths, seed=0):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(1, PAD, (len(lengths), max(lengths)), generator=generator)
        keep = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        tokens[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = END
        return tokens.masked_fill(~keep, PAD), keep

    return make
