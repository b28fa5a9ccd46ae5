"""GPT-2: its names, with matrices that act from the right, and its settings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from clearformer import limits
from clearformer.config import (
    Causal,
    Dropout,
    KVCache,
    LayerNorm,
    Learned,
    ModelConfig,
    NextToken,
)
from clearformer.hub import eos_tokens, generation_defaults, heads
from clearformer.hub.family import Family
from clearformer.hub.hf_config import ACTIVATIONS, Settings, activation_name
from clearformer.hub.tensor_names import TURNED, Row

OURS, THEIRS = "stack.blocks.{}.", "transformer.h.{}."

ROWS = (
    Row("embedding.token.weight", "transformer.wte.weight"),
    Row("embedding.position.table.weight", "transformer.wpe.weight"),
    Row(OURS + "attention_norm.{}", THEIRS + "ln_1.{}"),
    Row(OURS + "attention.project.weight", THEIRS + "attn.c_attn.weight", TURNED),
    Row(OURS + "attention.project.bias", THEIRS + "attn.c_attn.bias"),
    Row(OURS + "attention.output.weight", THEIRS + "attn.c_proj.weight", TURNED),
    Row(OURS + "attention.output.bias", THEIRS + "attn.c_proj.bias"),
    Row(OURS + "feed_forward_norm.{}", THEIRS + "ln_2.{}"),
    Row(OURS + "feed_forward.up.weight", THEIRS + "mlp.c_fc.weight", TURNED),
    Row(OURS + "feed_forward.up.bias", THEIRS + "mlp.c_fc.bias"),
    Row(OURS + "feed_forward.down.weight", THEIRS + "mlp.c_proj.weight", TURNED),
    Row(OURS + "feed_forward.down.bias", THEIRS + "mlp.c_proj.bias"),
    Row("stack.norm.{}", "transformer.ln_f.{}"),
)
OTHER_NAMES = {  # which the reference reads as well
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
}
# Of a head that sums a sequence up, which no generator has.
HARMLESS = {
    "is_decoder",  # true or not, a GPT-2 is one
    "n_ctx",  # the older name of n_positions, always the same number
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
}


def read(settings: Settings, names: Collection[str]) -> ModelConfig:
    for name, other in OTHER_NAMES.items():
        settings.rename(other, name)
    width = settings.whole("n_embd", limits.MOST_WIDTH)
    settings.only("scale_attn_weights", True)
    settings.only("scale_attn_by_inverse_layer_idx", False)
    settings.only("is_causal", True)
    settings.anything("reorder_and_upcast_attn")  # another order of the same products
    vocabulary = settings.whole("vocab_size", limits.MOST_VOCABULARY)
    generator = NextToken(
        tied=settings.flag("tie_word_embeddings", True),
        ends=eos_tokens.read(settings, vocabulary, silent=(50_256,)),
    )
    config = ModelConfig(
        name="gpt2",
        family="gpt2",
        vocabulary=vocabulary,
        length=settings.whole("n_positions", limits.MOST_LENGTH),
        layers=settings.whole("n_layer", limits.MOST_LAYERS),
        width=width,
        heads=settings.whole("n_head", limits.MOST_HEADS),
        hidden=settings.whole("n_inner", limits.MOST_HIDDEN, 4 * width),
        residual="pre",
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu_new"),  # type: ignore[arg-type]
        position=Learned(),
        patterns=(Causal(),),
        head=heads.of_decoder(settings, names, generator, "GPT2Model"),
        past=KVCache(),
        norm=LayerNorm(epsilon=settings.number("layer_norm_epsilon", 1e-5)),
        dropout=Dropout(
            embedding=settings.number("embd_pdrop", 0.1),
            attention=settings.number("attn_pdrop", 0.1),
            residual=settings.number("resid_pdrop", 0.1),
        ),
        init="gpt2",
    )
    settings.close(HARMLESS)
    return config


def write(config: ModelConfig) -> dict[str, Any]:
    head = config.head
    return {
        "model_type": "gpt2",
        "architectures": [heads.decoder_class(head, "GPT2", "LMHeadModel")],
        "vocab_size": config.vocabulary,
        "n_positions": config.length,
        "n_layer": config.layers,
        "n_embd": config.width,
        "n_head": config.heads,
        "n_inner": config.hidden,
        "activation_function": activation_name(config.activation, "gelu_new"),
        "layer_norm_epsilon": config.norm.epsilon,
        "embd_pdrop": config.dropout.embedding,
        "attn_pdrop": config.dropout.attention,
        "resid_pdrop": config.dropout.residual,
        "tie_word_embeddings": isinstance(head, NextToken) and head.tied,
        **eos_tokens.written(config),
        **heads.written_classes(head),
    }


GPT2 = Family(
    name="gpt2",
    model_types=("gpt2",),
    prefix="transformer.",
    rows=lambda config: ROWS + heads.decoder_rows(config.head, "classifier"),
    read=read,
    write=write,
    heads=r"lm_head\.|score\.|classifier\.|qa_outputs\.|multiple_choice_head\.",
    buffers=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
    unused=r"lm_head\.weight|score\..*|classifier\..*|qa_outputs\..*|multiple_choice_head\..*",
    gather=eos_tokens.gather,
    notes=generation_defaults.notes,
)
