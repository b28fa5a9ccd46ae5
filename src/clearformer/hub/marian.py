"""Marian's translators: the original encoder-decoder as Hugging Face's MarianMTModel.

Post-norm, sines before cosines, one embedding for source, target and output, a bias on every
matrix and on the logits. The settings of generation_config.json are imported too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from clearformer import limits
from clearformer.config import (
    Biases,
    Causal,
    Dropout,
    GenerationDefaults,
    KVCache,
    LayerNorm,
    ModelConfig,
    NextToken,
    Seq2SeqConfig,
    Sinusoidal,
)
from clearformer.hub import family as f
from clearformer.hub import generation_defaults
from clearformer.hub.convert import to_float32
from clearformer.hub.eos_tokens import read_generation_config
from clearformer.hub.hf_config import ACTIVATIONS, HFConfig, hf_activation, write_sizes
from clearformer.hub.safetensors_files import Weights
from clearformer.hub.tensor_names import QKV, ROW_VECTOR, Rename


def _block(ours: str, theirs: str) -> tuple[Rename, ...]:
    """Names in a block of either stack; the decoder has more."""
    attention = theirs + "self_attn."
    return (
        Rename(
            ours + "attention.project.{}",
            (attention + "q_proj.{}", attention + "k_proj.{}", attention + "v_proj.{}"),
            QKV,
        ),
        Rename(ours + "attention.output.{}", attention + "out_proj.{}"),
        Rename(ours + "attention_norm.{}", theirs + "self_attn_layer_norm.{}"),
        Rename(ours + "feed_forward.up.{}", theirs + "fc1.{}"),
        Rename(ours + "feed_forward.down.{}", theirs + "fc2.{}"),
        Rename(ours + "feed_forward_norm.{}", theirs + "final_layer_norm.{}"),
    )


DECODER, THEIRS = "decoder.blocks.{}.", "model.decoder.layers.{}."
CROSS = THEIRS + "encoder_attn."
SHARED = "model.shared.weight"

RENAMES = (
    Rename("source_embedding.token.weight", SHARED),
    *_block("encoder.blocks.{}.", "model.encoder.layers.{}."),
    Rename("target_embedding.token.weight", "model.decoder.embed_tokens.weight"),
    *_block(DECODER, THEIRS),
    Rename(
        DECODER + "cross_attention.project.{}",
        (CROSS + "q_proj.{}", CROSS + "k_proj.{}", CROSS + "v_proj.{}"),
        QKV,
    ),
    Rename(DECODER + "cross_attention.output.{}", CROSS + "out_proj.{}"),
    Rename(DECODER + "cross_attention_norm.{}", THEIRS + "encoder_attn_layer_norm.{}"),
    Rename("head.project.weight", "lm_head.weight"),
    Rename("head.project.bias", "final_logits_bias", ROW_VECTOR),
)
KEYS = {
    "vocabulary": "vocab_size",
    "length": "max_position_embeddings",
    "layers": "encoder_layers",
    "width": "d_model",
    "heads": "encoder_attention_heads",
    "hidden": "encoder_ffn_dim",
}
IGNORED_KEYS = {
    "_from_model_config",
    "_num_labels",
    "add_bias_logits",  # whether there is a bias is seen from its tensor
    "classif_dropout",
    "classifier_dropout",
    "decoder_layerdrop",  # for training only
    "encoder_layerdrop",
    "id2label",
    "init_std",
    "label2id",
    "num_hidden_layers",  # a second name of encoder_layers
}
POSITIONS = re.compile(r"(model\.)?(encoder|decoder)\.embed_positions\.weight")
# Generation settings: generation_config.json takes precedence over config.json.
FOLLOWED = {"bad_words_ids", "forced_eos_token_id", "max_length", "renormalize_logits"}
GENERATION_KEYS = {*FOLLOWED, "num_beams"}


# --- in ------------------------------------------------------------------------------------


def merge_files(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    """config.json, with the generation settings of generation_config.json if there is one."""
    generation = read_generation_config(folder)
    if generation is None:
        return {"forced_eos_token_id": 0, **data}  # the reference's default in this case only
    return {
        **{
            name: value
            for name, value in data.items()
            if name not in GENERATION_KEYS | generation_defaults.NAMES
        },
        **{name: value for name, value in generation.items() if value is not None},
    }


def read_config(settings: HFConfig, names: Collection[str]) -> ModelConfig:
    settings.rename("hidden_size", "d_model")
    settings.rename("num_attention_heads", "encoder_attention_heads")
    settings.require("is_encoder_decoder", True)
    settings.require("share_encoder_decoder_embeddings", True)
    settings.require("tie_word_embeddings", True)
    settings.require("static_position_embeddings", True)
    settings.require("normalize_before", False)
    settings.require("normalize_embedding", False)
    settings.require("add_final_layer_norm", False)
    sizes = settings.sizes(KEYS)
    vocabulary = sizes["vocabulary"]
    settings.require("decoder_vocab_size", vocabulary)
    settings.require("extra_pos_embeddings", vocabulary, 0, settings.get("pad_token_id"))
    settings.require("decoder_attention_heads", sizes["heads"])
    settings.require("decoder_ffn_dim", sizes["hidden"])
    dropout = settings.number("dropout", 0.1)
    scaled = settings.boolean("scale_embedding", False)
    config = Seq2SeqConfig(
        name="marian",
        family="marian",
        **sizes,
        decoder_layers=settings.integer("decoder_layers", limits.MAX_LAYERS),
        residual="post",
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu"),
        position=Sinusoidal(order="halves"),
        patterns=(Causal(),),
        head=NextToken(tied=True),
        cache=KVCache(),
        norm=LayerNorm(),
        embedding_scale="sqrt_width" if scaled else "one",
        biases=Biases(head="final_logits_bias" in names),
        dropout=Dropout(
            embedding=dropout,
            attention=settings.number("attention_dropout", 0.0),
            hidden=settings.number("activation_dropout", 0.0),
            residual=dropout,
        ),
        init="xavier",
    )
    settings.finish(IGNORED_KEYS)
    return config


def _id(settings: HFConfig, name: str, vocabulary: int) -> int:
    value = settings.get(name)
    if type(value) is not int or not 0 <= value < vocabulary:
        settings.refuse(name, value, f"it must be an id from 0 to {vocabulary - 1}")
    return int(value)


def read_generation(settings: HFConfig, config: ModelConfig) -> GenerationDefaults:
    vocabulary = config.vocabulary
    start_id = _id(settings, "decoder_start_token_id", vocabulary)
    end_id = _id(settings, "eos_token_id", vocabulary)
    forced = settings.get("forced_eos_token_id")
    if forced is not None and forced != end_id:
        settings.refuse("forced_eos_token_id", forced, f"it must be the end token, {end_id}")
    banned = settings.get("bad_words_ids") or []
    sequences = banned if isinstance(banned, list) else [banned]
    for sequence in sequences:
        single = isinstance(sequence, list) and len(sequence) == 1 and type(sequence[0]) is int
        if not single or not 0 <= sequence[0] < vocabulary:
            settings.refuse("bad_words_ids", banned, "clearformer bans single ids only")
    max_length = settings.integer("max_length", limits.MAX_LENGTH, limits.MAX_LENGTH)
    return GenerationDefaults(
        start_id=start_id,
        end_ids=(end_id,),
        banned_ids=tuple(sorted({sequence[0] for sequence in sequences})),
        renormalize=settings.boolean("renormalize_logits", False),
        force_end=forced is not None,
        # They count the start token, too.
        max_tokens=None if max_length == limits.MAX_LENGTH else max(1, max_length - 1),
    )


def notes(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Generation defaults that `translate` does not follow."""
    return generation_defaults.notes(data, followed=frozenset(FOLLOWED))


def verify(config: ModelConfig, weights: Weights) -> None:
    """Refuse stored positions that are not the sinusoidal ones computed here."""
    for name in weights.names():
        if not POSITIONS.fullmatch(name):
            continue
        table = to_float32(name, weights.tensor(name))
        if tuple(table.shape) != (config.length, config.width):
            raise ValueError(
                f"{name} has shape {tuple(table.shape)}, but its config.json makes it "
                f"{(config.length, config.width)}"
            )
        waves = Sinusoidal(order="halves").added(torch.arange(config.length), config.width)
        # The precision of float16 is about a thousandth here.
        if not (table - waves).abs().max() < 2e-3:
            raise ValueError(
                f"{name} is not the table of sines and cosines: learned positions of a "
                f"translator are not supported"
            )


# --- out -----------------------------------------------------------------------------------


def write_config(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config, Seq2SeqConfig)
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        **write_sizes(config, KEYS),
        "decoder_vocab_size": config.vocabulary,
        "decoder_layers": config.decoder_layers,
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.hidden,
        "activation_function": hf_activation(config.activation, "gelu"),
        "scale_embedding": config.embedding_scale == "sqrt_width",
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "static_position_embeddings": True,
        "dropout": config.dropout.residual,
        "attention_dropout": config.dropout.attention,
        "activation_dropout": config.dropout.hidden,
    }


def generation_config(config: ModelConfig, generation: GenerationDefaults) -> dict[str, Any] | None:
    """The content of generation_config.json."""
    max_tokens = generation.max_tokens or config.length
    settings = write_generation(config, replace(generation, max_tokens=max_tokens))
    return {**settings, "num_beams": 4}


def write_generation(config: ModelConfig, generation: GenerationDefaults) -> dict[str, Any]:
    """The entries for config.json."""
    start_id, end_id = generation.require_target_ids(config.name)
    settings: dict[str, Any] = {
        "decoder_start_token_id": start_id,
        "pad_token_id": start_id,
        "eos_token_id": end_id,
        "renormalize_logits": generation.renormalize,
    }
    if generation.resolved_banned_ids:
        settings["bad_words_ids"] = [[each] for each in generation.resolved_banned_ids]
    if generation.max_tokens is not None:
        settings["max_length"] = generation.max_tokens + 1
    if generation.force_end:
        settings["forced_eos_token_id"] = end_id
    return settings


def to_marian(
    config: Seq2SeqConfig, tensors: Mapping[str, Tensor]
) -> tuple[Seq2SeqConfig, dict[str, Tensor]]:
    """The same model with a bias on every matrix (zero where it had none), and with sines before
    cosines: the components of the width are reordered everywhere.
    """
    converted = {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}
    for name, tensor in list(converted.items()):
        bias = name.removesuffix("weight") + "bias"
        matrix = re.search(r"\.(project|output|up|down)\.weight$", name)
        if matrix and not name.startswith("head.") and bias not in converted:
            converted[bias] = torch.zeros(len(tensor))
    config = replace(config, biases=Biases(head=config.biases.head))
    if config.position != Sinusoidal(order="turns"):
        return config, converted
    order = torch.cat((torch.arange(0, config.width, 2), torch.arange(1, config.width, 2)))
    for name, tensor in converted.items():
        if re.search(r"(token|project|up)\.weight$", name):  # columns of the model width
            converted[name] = tensor[:, order].contiguous()
        elif re.search(r"(_norm|output|down)\.(weight|bias)$", name):  # rows of the model width
            converted[name] = tensor[order].contiguous()
    return replace(config, position=Sinusoidal(order="halves")), converted


MARIAN = f.Family(
    name="marian",
    model_types=("marian",),
    prefix="model.",
    renames=lambda config: RENAMES,
    read_config=read_config,
    write_config=write_config,
    heads=r"lm_head\.|final_logits_bias",
    buffers=r"model\.(encoder|decoder)\.embed_positions\.weight",
    unused=r"",
    aliases={
        "model.encoder.embed_tokens.weight": SHARED,
        "model.decoder.embed_tokens.weight": SHARED,
        "lm_head.weight": SHARED,
    },
    shape=Seq2SeqConfig,
    merge_files=merge_files,
    verify=verify,
    notes=notes,
    read_generation=read_generation,
    write_generation=write_generation,
    generation_config=generation_config,
    to_family_form=cast(f.ToFamilyForm, to_marian),
)
