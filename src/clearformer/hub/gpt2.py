"""GPT-2: names, with transposed matrices, and settings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from clearformer import limits
from clearformer.config import (
    Causal,
    Dropout,
    GenerationDefaults,
    KVCache,
    LayerNorm,
    Learned,
    ModelConfig,
    NextToken,
)
from clearformer.hub import eos_tokens, generation_defaults, heads
from clearformer.hub.family import Family
from clearformer.hub.hf_config import (
    ACTIVATIONS,
    HFConfig,
    hf_activation,
    norm_epsilon,
    write_sizes,
)
from clearformer.hub.tensor_names import TRANSPOSED, Rename

OURS, THEIRS = "stack.blocks.{}.", "transformer.h.{}."

RENAMES = (
    Rename("embedding.token.weight", "transformer.wte.weight"),
    Rename("embedding.position.table.weight", "transformer.wpe.weight"),
    Rename(OURS + "attention_norm.{}", THEIRS + "ln_1.{}"),
    Rename(OURS + "attention.project.weight", THEIRS + "attn.c_attn.weight", TRANSPOSED),
    Rename(OURS + "attention.project.bias", THEIRS + "attn.c_attn.bias"),
    Rename(OURS + "attention.output.weight", THEIRS + "attn.c_proj.weight", TRANSPOSED),
    Rename(OURS + "attention.output.bias", THEIRS + "attn.c_proj.bias"),
    Rename(OURS + "feed_forward_norm.{}", THEIRS + "ln_2.{}"),
    Rename(OURS + "feed_forward.up.weight", THEIRS + "mlp.c_fc.weight", TRANSPOSED),
    Rename(OURS + "feed_forward.up.bias", THEIRS + "mlp.c_fc.bias"),
    Rename(OURS + "feed_forward.down.weight", THEIRS + "mlp.c_proj.weight", TRANSPOSED),
    Rename(OURS + "feed_forward.down.bias", THEIRS + "mlp.c_proj.bias"),
    Rename("stack.norm.{}", "transformer.ln_f.{}"),
)
KEYS = {
    "vocabulary": "vocab_size",
    "length": "n_positions",
    "layers": "n_layer",
    "width": "n_embd",
    "heads": "n_head",
}
OTHER_NAMES = {  # which the reference reads as well
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
}
# The summary_ keys are for a head that no generator has.
IGNORED_KEYS = {
    "is_decoder",  # true or not, a GPT-2 is one
    "n_ctx",  # the older name of n_positions, always the same number
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
}


def read_config(settings: HFConfig, names: Collection[str]) -> ModelConfig:
    for name, other in OTHER_NAMES.items():
        settings.rename(other, name)
    sizes = settings.sizes(KEYS)
    settings.require("scale_attn_weights", True)
    settings.require("scale_attn_by_inverse_layer_idx", False)
    settings.require("is_causal", True)
    settings.get("reorder_and_upcast_attn")  # the same products in another order
    generator = NextToken(tied=settings.boolean("tie_word_embeddings", True))
    config = ModelConfig(
        name="gpt2",
        family="gpt2",
        **sizes,
        hidden=settings.integer("n_inner", limits.MAX_HIDDEN, 4 * sizes["width"]),
        residual="pre",
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu_new"),
        position=Learned(),
        patterns=(Causal(),),
        head=heads.decoder_head(settings, names, generator, "GPT2Model"),
        cache=KVCache(),
        norm=LayerNorm(epsilon=settings.number("layer_norm_epsilon", 1e-5)),
        dropout=Dropout(
            embedding=settings.number("embd_pdrop", 0.1),
            attention=settings.number("attn_pdrop", 0.1),
            residual=settings.number("resid_pdrop", 0.1),
        ),
        init="gpt2",
    )
    settings.finish(IGNORED_KEYS)
    return config


def read_generation(settings: HFConfig, config: ModelConfig) -> GenerationDefaults:
    return eos_tokens.read_generation(settings, config, default=(50_256,))


def write_config(config: ModelConfig) -> dict[str, Any]:
    head = config.head
    return {
        "model_type": "gpt2",
        "architectures": [heads.decoder_architecture(head, "GPT2", "LMHeadModel")],
        **write_sizes(config, KEYS),
        "n_inner": config.hidden,
        "activation_function": hf_activation(config.activation, "gelu_new"),
        "layer_norm_epsilon": norm_epsilon(config.norm),
        "embd_pdrop": config.dropout.embedding,
        "attn_pdrop": config.dropout.attention,
        "resid_pdrop": config.dropout.residual,
        "tie_word_embeddings": isinstance(head, NextToken) and head.tied,
        **heads.write_classes(head),
    }


GPT2 = Family(
    name="gpt2",
    model_types=("gpt2",),
    prefix="transformer.",
    renames=lambda config: RENAMES + heads.decoder_renames(config.head, "classifier"),
    read_config=read_config,
    write_config=write_config,
    read_generation=read_generation,
    write_generation=eos_tokens.write_generation,
    heads=r"lm_head\.|score\.|classifier\.|qa_outputs\.|multiple_choice_head\.",
    buffers=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
    unused=r"lm_head\.weight|score\..*|classifier\..*|qa_outputs\..*|multiple_choice_head\..*",
    merge_files=eos_tokens.merge_files,
    notes=generation_defaults.notes,
)
