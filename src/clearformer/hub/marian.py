"""Marian's translators: the original encoder-decoder as Hugging Face's MarianMTModel has it.

Post-norm, sines before cosines, one embedding for source, target and output, a bias on every
matrix and on the logits. What its makers say about writing (generation_config.json) comes along.
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
    KVCache,
    LayerNorm,
    Marks,
    ModelConfig,
    NextToken,
    Seq2SeqConfig,
    Sinusoidal,
    TargetRules,
)
from clearformer.core.positions import Sinusoidal as Waves
from clearformer.core.positions import in_halves
from clearformer.hub import family as f
from clearformer.hub import generation_defaults
from clearformer.hub.convert import floats
from clearformer.hub.eos_tokens import GENERATION
from clearformer.hub.hf_config import ACTIVATIONS, Settings, activation_name
from clearformer.hub.safetensors_files import Weights
from clearformer.hub.tensor_names import ONE_ROW, PROJECTIONS, Row
from clearformer.safe_json import read_json


def _block(ours: str, theirs: str) -> tuple[Row, ...]:
    """What a block of either stack has; `theirs` may have more."""
    own = theirs + "self_attn."
    return (
        Row(
            ours + "attention.project.{}",
            (own + "q_proj.{}", own + "k_proj.{}", own + "v_proj.{}"),
            PROJECTIONS,
        ),
        Row(ours + "attention.output.{}", own + "out_proj.{}"),
        Row(ours + "attention_norm.{}", theirs + "self_attn_layer_norm.{}"),
        Row(ours + "feed_forward.up.{}", theirs + "fc1.{}"),
        Row(ours + "feed_forward.down.{}", theirs + "fc2.{}"),
        Row(ours + "feed_forward_norm.{}", theirs + "final_layer_norm.{}"),
    )


DECODER, THEIRS = "decoder.blocks.{}.", "model.decoder.layers.{}."
CROSS = THEIRS + "encoder_attn."
SHARED = "model.shared.weight"

ROWS = (
    Row("source_embedding.token.weight", SHARED),
    *_block("encoder.blocks.{}.", "model.encoder.layers.{}."),
    Row("target_embedding.token.weight", "model.decoder.embed_tokens.weight"),
    *_block(DECODER, THEIRS),
    Row(
        DECODER + "cross_attention.project.{}",
        (CROSS + "q_proj.{}", CROSS + "k_proj.{}", CROSS + "v_proj.{}"),
        PROJECTIONS,
    ),
    Row(DECODER + "cross_attention.output.{}", CROSS + "out_proj.{}"),
    Row(DECODER + "cross_attention_norm.{}", THEIRS + "encoder_attn_layer_norm.{}"),
    Row("head.project.weight", "lm_head.weight"),
    Row("head.project.bias", "final_logits_bias", ONE_ROW),
)
HARMLESS = {
    "_from_model_config",
    "_num_labels",
    "add_bias_logits",  # the bias is there or not, as its tensor tells
    "classif_dropout",
    "classifier_dropout",
    "decoder_layerdrop",  # of training alone
    "encoder_layerdrop",
    "id2label",
    "init_std",
    "label2id",
    "num_hidden_layers",  # a second name of encoder_layers
}
POSITIONS = re.compile(r"(model\.)?(encoder|decoder)\.embed_positions\.weight")
# How to write: where there is a file about it, what config.json says of it is old.
WRITING = {"bad_words_ids", "forced_eos_token_id", "max_length", "num_beams", "renormalize_logits"}


# --- in ------------------------------------------------------------------------------------


def gather(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    """The settings, with those for writing from the file of their own if there is one."""
    path = folder / GENERATION
    if not path.exists():
        return {"forced_eos_token_id": 0, **data}  # their default, there alone
    beside = read_json(path)
    if not isinstance(beside, dict):
        raise ValueError(f"{path} is no object")
    return {
        **{
            name: value
            for name, value in data.items()
            if name not in WRITING | generation_defaults.NAMES
        },
        **{name: value for name, value in beside.items() if value is not None},
    }


def read(settings: Settings, names: Collection[str]) -> ModelConfig:
    settings.rename("hidden_size", "d_model")
    settings.rename("num_attention_heads", "encoder_attention_heads")
    settings.only("is_encoder_decoder", True)
    settings.only("share_encoder_decoder_embeddings", True)
    settings.only("tie_word_embeddings", True)
    settings.only("static_position_embeddings", True)
    settings.only("normalize_before", False)
    settings.only("normalize_embedding", False)
    settings.only("add_final_layer_norm", False)
    vocabulary = settings.whole("vocab_size", limits.MOST_VOCABULARY)
    settings.only("decoder_vocab_size", vocabulary)
    settings.only("extra_pos_embeddings", vocabulary, 0, settings.anything("pad_token_id"))
    heads = settings.whole("encoder_attention_heads", limits.MOST_HEADS)
    settings.only("decoder_attention_heads", heads)
    hidden = settings.whole("encoder_ffn_dim", limits.MOST_HIDDEN)
    settings.only("decoder_ffn_dim", hidden)
    dropout = settings.number("dropout", 0.1)
    scaled = settings.flag("scale_embedding", False)
    marks = Marks(
        start=_id(settings, "decoder_start_token_id", vocabulary),
        end=_id(settings, "eos_token_id", vocabulary),
    )
    config = Seq2SeqConfig(
        name="marian",
        family="marian",
        vocabulary=vocabulary,
        length=settings.whole("max_position_embeddings", limits.MOST_LENGTH),
        layers=settings.whole("encoder_layers", limits.MOST_LAYERS),
        decoder_layers=settings.whole("decoder_layers", limits.MOST_LAYERS),
        width=settings.whole("d_model", limits.MOST_WIDTH),
        heads=heads,
        hidden=hidden,
        residual="post",
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        position=Sinusoidal(order="halves"),
        patterns=(Causal(),),
        head=NextToken(tied=True),
        past=KVCache(),
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
        marks=marks,
        rules=_rules(settings, marks, vocabulary),
    )
    settings.close(HARMLESS)
    return config


def _id(settings: Settings, name: str, vocabulary: int) -> int:
    value = settings.anything(name)
    if type(value) is not int or not 0 <= value < vocabulary:
        settings.refuse(name, value, f"it must be an id from 0 to {vocabulary - 1}")
    return int(value)


def _rules(settings: Settings, marks: Marks, vocabulary: int) -> TargetRules:
    forced = settings.anything("forced_eos_token_id")
    if forced is not None and forced != marks.end:
        settings.refuse("forced_eos_token_id", forced, f"it must be the end mark, {marks.end}")
    banned = settings.anything("bad_words_ids") or []
    words = banned if isinstance(banned, list) else [banned]
    for word in words:
        single = isinstance(word, list) and len(word) == 1 and type(word[0]) is int
        if not single or not 0 <= word[0] < vocabulary:
            settings.refuse("bad_words_ids", banned, "clearformer bans single ids of its own")
    most = settings.whole("max_length", limits.MOST_LENGTH, limits.MOST_LENGTH)
    return TargetRules(
        never=tuple(sorted({word[0] for word in words})),
        share="given" if settings.flag("renormalize_logits", False) else "kept",
        limit="cut" if forced is None else "closed",
        # They count the start mark, too.
        most=None if most == limits.MOST_LENGTH else max(1, most - 1),
    )


def notes(data: Mapping[str, Any]) -> tuple[str, ...]:
    """How its makers translate, where that is not what `translate` does unasked."""
    return generation_defaults.notes(data, "translate", followed=frozenset(WRITING - {"num_beams"}))


def verify(config: ModelConfig, weights: Weights) -> None:
    """Positions that lie in a file must be the ones that are computed here."""
    for name in weights.names():
        if not POSITIONS.fullmatch(name):
            continue
        table = floats(name, weights.tensor(name))
        if tuple(table.shape) != (config.length, config.width):
            raise ValueError(
                f"{name} has shape {tuple(table.shape)}, but its config.json makes it "
                f"{(config.length, config.width)}"
            )
        waves = Waves(config.width, in_halves)(torch.arange(config.length), config.length)
        # Half precision is exact to about a thousandth here.
        if not (table - waves).abs().max() < 2e-3:
            raise ValueError(
                f"{name} is not the table of sines and cosines: learned positions of a "
                f"translator are not supported"
            )


# --- out -----------------------------------------------------------------------------------


def write(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config, Seq2SeqConfig)
    marks = config.marks
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocabulary,
        "decoder_vocab_size": config.vocabulary,
        "max_position_embeddings": config.length,
        "encoder_layers": config.layers,
        "decoder_layers": config.decoder_layers,
        "d_model": config.width,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.hidden,
        "decoder_ffn_dim": config.hidden,
        "activation_function": activation_name(config.activation, "gelu"),
        "scale_embedding": config.embedding_scale == "sqrt_width",
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "static_position_embeddings": True,
        "dropout": config.dropout.residual,
        "attention_dropout": config.dropout.attention,
        "activation_dropout": config.dropout.hidden,
        **({} if marks is None else _ids(marks)),
        **_wishes(config.target_rules, marks),
    }


def generation(config: ModelConfig) -> dict[str, Any] | None:
    """What stands in generation_config.json: how targets are written."""
    assert isinstance(config, Seq2SeqConfig)
    assert config.marks is not None
    rules = config.target_rules
    rules = replace(rules, most=rules.most or config.length)
    return {**_ids(config.marks), **_wishes(rules, config.marks), "num_beams": 4}


def _ids(marks: Marks) -> dict[str, int]:
    return {
        "decoder_start_token_id": marks.start,
        "pad_token_id": marks.start,
        "eos_token_id": marks.end,
    }


def _wishes(rules: TargetRules, marks: Marks | None) -> dict[str, Any]:
    found: dict[str, Any] = {"renormalize_logits": rules.share == "given"}
    if rules.never:
        found["bad_words_ids"] = [[each] for each in rules.never]
    if rules.most is not None:
        found["max_length"] = rules.most + 1
    if rules.limit == "closed" and marks is not None:
        found["forced_eos_token_id"] = marks.end
    return found


def as_marian(
    config: Seq2SeqConfig, tensors: Mapping[str, Tensor]
) -> tuple[Seq2SeqConfig, dict[str, Tensor]]:
    """The same model with a bias on every matrix, zero where it had none, and with its positions'
    sines before the cosines: the components of the width in another order, everywhere.
    """
    found = {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}
    for name, tensor in list(found.items()):
        bias = name.removesuffix("weight") + "bias"
        matrix = re.search(r"\.(project|output|up|down)\.weight$", name)
        if matrix and not name.startswith("head.") and bias not in found:
            found[bias] = torch.zeros(len(tensor))
    config = replace(config, biases=Biases(head=config.biases.head))
    if config.position != Sinusoidal(order="turns"):
        return config, found
    order = torch.cat((torch.arange(0, config.width, 2), torch.arange(1, config.width, 2)))
    for name, tensor in found.items():
        if re.search(r"(token|project|up)\.weight$", name):  # reads or is a vector of the model
            found[name] = tensor[:, order].contiguous()
        elif re.search(r"(_norm|output|down)\.(weight|bias)$", name):  # writes one
            found[name] = tensor[order].contiguous()
    return replace(config, position=Sinusoidal(order="halves")), found


MARIAN = f.Family(
    name="marian",
    model_types=("marian",),
    prefix="model.",
    rows=lambda config: ROWS,
    read=read,
    write=write,
    heads=r"lm_head\.|final_logits_bias",
    buffers=r"model\.(encoder|decoder)\.embed_positions\.weight",
    unused=r"",
    aliases={
        "model.encoder.embed_tokens.weight": SHARED,
        "model.decoder.embed_tokens.weight": SHARED,
        "lm_head.weight": SHARED,
    },
    shape=Seq2SeqConfig,
    gather=gather,
    verify=verify,
    notes=notes,
    generation=generation,
    reform=cast(f.Reform, as_marian),
)
