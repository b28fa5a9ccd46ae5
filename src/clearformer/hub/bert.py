"""BERT: its names and settings, for each of the heads that it is published with."""

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
    MultipleChoice,
    NextSentence,
    Pretraining,
    TokenClassifier,
)
from clearformer.hub import heads
from clearformer.hub.family import Family
from clearformer.hub.hf_config import ACTIVATIONS, Settings, activation_name
from clearformer.hub.tensor_names import PROJECTIONS, Row

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
PROJECTS: dict[type[Head], str] = {  # what we call `head.project` in all the other heads
    Classifier: "classifier.{}",
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


def read(settings: Settings, names: Collection[str]) -> ModelConfig:
    settings.only("position_embedding_type", "absolute")
    norm = LayerNorm(epsilon=settings.number("layer_norm_eps", EPSILON))
    dropout = settings.number("hidden_dropout_prob", 0.1)
    config = ModelConfig(
        name="bert",
        family="bert",
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
    settings.close({"tie_word_embeddings"})
    return config


def _head(settings: Settings, names: Collection[str]) -> Head:
    """By the architecture; then by the tensors, since many a checkpoint has more than it says."""
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
        settings.only("tie_word_embeddings", True)
        return Pretraining() if "cls.seq_relationship.weight" in names else kind()
    return kind()


def write(config: ModelConfig) -> dict[str, Any]:
    names_of = {head: name for name, head in ARCHITECTURES.items()}
    settings: dict[str, Any] = {
        "model_type": "bert",
        "architectures": [names_of.get(type(config.head), "BertModel")],
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.length,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": activation_name(config.activation, "gelu"),
        "layer_norm_eps": config.norm.epsilon,
        "type_vocab_size": config.segments or 1,
        "hidden_dropout_prob": config.dropout.residual,
        "attention_probs_dropout_prob": config.dropout.attention,
    }
    return settings | heads.written_classes(config.head)


def rows(config: ModelConfig) -> tuple[Row, ...]:
    """The table; what we call `head.project` depends on the head."""
    theirs = PROJECTS.get(type(config.head))
    return ROWS + (MASKED if theirs is None else (Row("head.project.{}", theirs),))


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
