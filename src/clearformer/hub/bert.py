"""BERT: names and settings, for each of its published heads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from clearformer import limits
from clearformer.config import (
    AnswerSpan,
    Classifier,
    Dropout,
    Features,
    Full,
    Head,
    LayerNorm,
    Learned,
    MaskedToken,
    ModelConfig,
    MultiLabelClassifier,
    MultipleChoice,
    NextSentence,
    PairClassifier,
    Pretraining,
    Regressor,
    TokenClassifier,
)
from clearformer.hub import heads
from clearformer.hub.family import Family
from clearformer.hub.hf_config import (
    ACTIVATIONS,
    SIZE_KEYS,
    HFConfig,
    hf_activation,
    norm_epsilon,
    write_sizes,
)
from clearformer.hub.tensor_names import QKV, Rename

OURS, THEIRS = "stack.blocks.{}.", "bert.encoder.layer.{}."
SELF = THEIRS + "attention.self."

RENAMES = (
    Rename("embedding.token.weight", "bert.embeddings.word_embeddings.weight"),
    Rename("embedding.position.table.weight", "bert.embeddings.position_embeddings.weight"),
    Rename("embedding.segment.weight", "bert.embeddings.token_type_embeddings.weight"),
    Rename("embedding.norm.{}", "bert.embeddings.LayerNorm.{}"),
    Rename(
        OURS + "attention.project.{}", (SELF + "query.{}", SELF + "key.{}", SELF + "value.{}"), QKV
    ),
    Rename(OURS + "attention.output.{}", THEIRS + "attention.output.dense.{}"),
    Rename(OURS + "attention_norm.{}", THEIRS + "attention.output.LayerNorm.{}"),
    Rename(OURS + "feed_forward.up.{}", THEIRS + "intermediate.dense.{}"),
    Rename(OURS + "feed_forward.down.{}", THEIRS + "output.dense.{}"),
    Rename(OURS + "feed_forward_norm.{}", THEIRS + "output.LayerNorm.{}"),
    # Pretraining: masked tokens and next sentence.
    Rename("head.masked.transform.{}", "cls.predictions.transform.dense.{}"),
    Rename("head.masked.norm.{}", "cls.predictions.transform.LayerNorm.{}"),
    Rename("head.masked.project.weight", "cls.predictions.decoder.weight"),
    Rename("head.masked.project.bias", "cls.predictions.bias"),
    Rename("head.sentence.pool.transform.{}", "bert.pooler.dense.{}"),
    Rename("head.sentence.project.{}", "cls.seq_relationship.{}"),
    # Features and a classifier, both on the pooled first token.
    Rename("head.pool.transform.{}", "bert.pooler.dense.{}"),
    # Masked tokens only; after Pretraining, whose names match first.
    Rename("head.transform.{}", "cls.predictions.transform.dense.{}"),
    Rename("head.norm.{}", "cls.predictions.transform.LayerNorm.{}"),
)
MASKED = (
    Rename("head.project.weight", "cls.predictions.decoder.weight"),
    Rename("head.project.bias", "cls.predictions.bias"),
)
PROJECT_NAMES: dict[type[Head], str] = {  # what `head.project` is called in the other heads
    Classifier: "classifier.{}",
    PairClassifier: "classifier.{}",
    MultiLabelClassifier: "classifier.{}",
    Regressor: "classifier.{}",
    TokenClassifier: "classifier.{}",
    MultipleChoice: "classifier.{}",
    AnswerSpan: "qa_outputs.{}",
    NextSentence: "cls.seq_relationship.{}",
}
ARCHITECTURES: dict[str, type[Head]] = {
    "BertModel": Features,
    "BertForPreTraining": Pretraining,
    "BertForMaskedLM": MaskedToken,
    "BertForNextSentencePrediction": NextSentence,
    "BertForSequenceClassification": Classifier,
    "BertForTokenClassification": TokenClassifier,
    "BertForQuestionAnswering": AnswerSpan,
    "BertForMultipleChoice": MultipleChoice,
}
EPSILON = 1e-12


def read_config(settings: HFConfig, names: Collection[str]) -> ModelConfig:
    settings.require("position_embedding_type", "absolute")
    norm = LayerNorm(epsilon=settings.number("layer_norm_eps", EPSILON))
    dropout = settings.number("hidden_dropout_prob", 0.1)
    config = ModelConfig(
        name="bert",
        family="bert",
        **settings.sizes(SIZE_KEYS),
        residual="post",
        activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),
        position=Learned(),
        patterns=(Full(),),
        head=_head(settings, names),
        norm=norm,
        embedding_norm=norm,
        segments=settings.integer("type_vocab_size", limits.MAX_SEGMENTS, 2),
        dropout=Dropout(
            embedding=dropout,
            attention=settings.number("attention_probs_dropout_prob", 0.1),
            residual=dropout,
        ),
        init="normal",
    )
    settings.finish({"tie_word_embeddings"})
    return config


def _head(settings: HFConfig, names: Collection[str]) -> Head:
    """By the architecture, then by the tensors: many checkpoints have more than they say."""
    named = heads.architecture(settings) or "BertModel"
    if named not in ARCHITECTURES:
        settings.refuse("architectures", named, f"known: {', '.join(ARCHITECTURES)}")
    kind = ARCHITECTURES[named]
    if kind is Classifier:
        return heads.classifier(settings, "pooler")
    if kind is TokenClassifier:
        return heads.token_classifier(settings)
    if kind is Features:
        return Features(pool="pooler" if "bert.pooler.dense.weight" in names else "mean")
    if kind in (MaskedToken, Pretraining):
        settings.require("tie_word_embeddings", True)
        return Pretraining() if "cls.seq_relationship.weight" in names else kind()
    return kind()


def write_config(config: ModelConfig) -> dict[str, Any]:
    names_of = {head: name for name, head in ARCHITECTURES.items()}
    names_of |= dict.fromkeys(
        (PairClassifier, MultiLabelClassifier, Regressor), names_of[Classifier]
    )
    settings: dict[str, Any] = {
        "model_type": "bert",
        "architectures": [names_of.get(type(config.head), "BertModel")],
        **write_sizes(config, SIZE_KEYS),
        "hidden_act": hf_activation(config.activation, "gelu"),
        "layer_norm_eps": norm_epsilon(config.norm),
        "type_vocab_size": config.segments or 1,
        "hidden_dropout_prob": config.dropout.residual,
        "attention_probs_dropout_prob": config.dropout.attention,
    }
    return settings | heads.write_classes(config.head)


def renames(config: ModelConfig) -> tuple[Rename, ...]:
    """The table of names; what `head.project` is called depends on the head."""
    theirs = PROJECT_NAMES.get(type(config.head))
    return RENAMES + (MASKED if theirs is None else (Rename("head.project.{}", theirs),))


BERT = Family(
    name="bert",
    model_types=("bert",),
    prefix="bert.",
    renames=renames,
    read_config=read_config,
    write_config=write_config,
    heads=r"cls\.|classifier\.|qa_outputs\.",
    buffers=r"bert\.embeddings\.(position_ids|token_type_ids)",
    unused=r"cls\..*|classifier\..*|qa_outputs\..*|bert\.pooler\..*",
    # TensorFlow's names, which the first published files have.
    old_suffixes={".gamma": ".weight", ".beta": ".bias"},
    aliases={"cls.predictions.decoder.bias": "cls.predictions.bias"},
)
