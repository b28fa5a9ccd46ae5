"""BERT: its names and settings, for each of the heads that it is published with."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from clearformer import limits
from clearformer.config import (
    Classifier,
    Dropout,
    Features,
    Full,
    Head,
    LayerNorm,
    Learned,
    MaskedToken,
    ModelConfig,
    Pretraining,
)
from clearformer.hub.family import Family
from clearformer.hub.names import PROJECTIONS, Row
from clearformer.hub.settings import Settings

OURS, THEIRS = "stack.blocks.{}.", "bert.encoder.layer.{}."
SELF = THEIRS + "attention.self."

ROWS = (
    Row("embedding.token.weight", "bert.embeddings.word_embeddings.weight"),
    Row("embedding.position.table.weight", "bert.embeddings.position_embeddings.weight"),
    Row("embedding.segment.weight", "bert.embeddings.token_type_embeddings.weight"),
    Row("embedding.norm.{}", "bert.embeddings.LayerNorm.{}"),
    Row(
        OURS + "attention.project.{}",
        (SELF + "query.{}", SELF + "key.{}", SELF + "value.{}"),
        PROJECTIONS,
    ),
    Row(OURS + "attention.output.{}", THEIRS + "attention.output.dense.{}"),
    Row(OURS + "attention_norm.{}", THEIRS + "attention.output.LayerNorm.{}"),
    Row(OURS + "feed_forward.up.{}", THEIRS + "intermediate.dense.{}"),
    Row(OURS + "feed_forward.down.{}", THEIRS + "output.dense.{}"),
    Row(OURS + "feed_forward_norm.{}", THEIRS + "output.LayerNorm.{}"),
    # Pretraining: hidden tokens and next sentence.
    Row("head.masked.transform.{}", "cls.predictions.transform.dense.{}"),
    Row("head.masked.norm.{}", "cls.predictions.transform.LayerNorm.{}"),
    Row("head.masked.project.weight", "cls.predictions.decoder.weight"),
    Row("head.masked.project.bias", "cls.predictions.bias"),
    Row("head.sentence.pool.transform.{}", "bert.pooler.dense.{}"),
    Row("head.sentence.project.{}", "cls.seq_relationship.{}"),
    # Features and a classifier, both on the pooled first token.
    Row("head.pool.transform.{}", "bert.pooler.dense.{}"),
    # Hidden tokens alone; after the two before, which are about the same places.
    Row("head.transform.{}", "cls.predictions.transform.dense.{}"),
    Row("head.norm.{}", "cls.predictions.transform.LayerNorm.{}"),
)
MASKED = (
    Row("head.project.weight", "cls.predictions.decoder.weight"),
    Row("head.project.bias", "cls.predictions.bias"),
)
CLASSIFIER = (Row("head.project.{}", "classifier.{}"),)
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
ARCHITECTURES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
)
EPSILON = 1e-12


def read(settings: Settings, names: Collection[str]) -> ModelConfig:
    settings.only("position_embedding_type", "absolute")
    settings.only("tie_word_embeddings", True)
    norm = LayerNorm(epsilon=settings.number("layer_norm_eps", EPSILON))
    dropout = settings.number("hidden_dropout_prob", 0.1)
    config = ModelConfig(
        name="bert",
        vocabulary=settings.whole("vocab_size", limits.MOST_VOCABULARY),
        length=settings.whole("max_position_embeddings", limits.MOST_LENGTH),
        layers=settings.whole("num_hidden_layers", limits.MOST_LAYERS),
        width=settings.whole("hidden_size", limits.MOST_WIDTH),
        heads=settings.whole("num_attention_heads", limits.MOST_HEADS),
        hidden=settings.whole("intermediate_size", limits.MOST_HIDDEN),
        residual="post",
        activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        position=Learned(),
        patterns=(Full(),),
        head=_head(settings, names),
        norm=norm,
        embedding_norm=norm,
        segments=settings.whole("type_vocab_size", limits.MOST_SEGMENTS, 2),
        dropout=Dropout(
            embedding=dropout,
            attention=settings.number("attention_probs_dropout_prob", 0.1),
            residual=dropout,
        ),
        init="normal",
    )
    settings.close({"label2id", "classifier_dropout"})
    return config


def _head(settings: Settings, names: Collection[str]) -> Head:
    """By the architecture; then by the tensors, since many a checkpoint has more than it says."""
    labels = settings.anything("id2label")
    named = len(labels) if isinstance(labels, dict) and labels else 2
    count = settings.whole("num_labels", limits.MOST_CLASSES, named)
    architectures = settings.anything("architectures") or ["BertModel"]
    architecture = architectures[0] if isinstance(architectures, list) else architectures
    pool: Literal["pooler", "mean"] = "pooler" if "bert.pooler.dense.weight" in names else "mean"
    if architecture not in ARCHITECTURES:
        settings.refuse("architectures", architecture, f"known: {', '.join(ARCHITECTURES)}")
    if architecture == "BertForSequenceClassification":
        return Classifier(classes=count, pool="pooler", names=_names(settings, labels, count))
    if architecture == "BertModel":
        return Features(pool=pool)
    if "cls.seq_relationship.weight" in names or architecture == "BertForPreTraining":
        return Pretraining()
    return MaskedToken()


def _names(settings: Settings, labels: Any, count: int) -> tuple[str, ...]:
    if labels is None:
        return tuple(f"LABEL_{i}" for i in range(count))
    found = [labels.get(str(i)) for i in range(count)] if isinstance(labels, dict) else []
    if not all(isinstance(name, str) and _writable(name) for name in found):
        found = []
    if len(set(found)) != count:
        settings.refuse("id2label", labels, f"it must name the classes 0 to {count - 1}")
    return tuple(str(name) for name in found)


def _writable(text: str) -> bool:
    """Half of a surrogate pair is no text that any file could hold."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def write(config: ModelConfig) -> dict[str, Any]:
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    settings: dict[str, Any] = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.length,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": names.get(config.activation, "gelu"),
        "layer_norm_eps": config.norm.epsilon,
        "type_vocab_size": config.segments or 1,
        "hidden_dropout_prob": config.dropout.residual,
        "attention_probs_dropout_prob": config.dropout.attention,
    }
    match config.head:
        case Pretraining():
            settings["architectures"] = ["BertForPreTraining"]
        case MaskedToken():
            settings["architectures"] = ["BertForMaskedLM"]
        case Classifier(classes=classes, names=given):
            labels = given or tuple(f"LABEL_{i}" for i in range(classes))
            settings["architectures"] = ["BertForSequenceClassification"]
            settings["id2label"] = {str(i): name for i, name in enumerate(labels)}
            settings["label2id"] = {name: i for i, name in enumerate(labels)}
        case _:
            pass
    return settings


def rows(config: ModelConfig) -> tuple[Row, ...]:
    """The table; what we call `head.project` depends on the head."""
    return ROWS + (CLASSIFIER if isinstance(config.head, Classifier) else MASKED)


BERT = Family(
    name="bert",
    model_types=("bert",),
    prefix="bert.",
    rows=rows,
    read=read,
    write=write,
    heads=r"cls\.|classifier\.|qa_outputs\.",
    buffers=r"bert\.embeddings\.(position_ids|token_type_ids)",
    unused=r"cls\..*|classifier\..*|qa_outputs\..*|bert\.pooler\..*",
    # TensorFlow's names, which the first published files still have.
    renames={".gamma": ".weight", ".beta": ".bias"},
    aliases={"cls.predictions.decoder.bias": "cls.predictions.bias"},
)
