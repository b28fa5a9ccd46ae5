"""BERT configs: reading, writing, and the head of a checkpoint."""

import pytest

from clearformer.config import Classifier, Features, MaskedToken, Pretraining
from clearformer.families import bert
from clearformer.hub.bert import BERT
from clearformer.hub.export_family import compared_fields
from clearformer.hub.hf_config import HFConfig

# As the file of the released model has it.
PUBLISHED = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 30522,
}
SENTENCE = {"cls.seq_relationship.weight", "bert.pooler.dense.weight"}


def read(settings, names=SENTENCE):
    return BERT.read_config(HFConfig(settings, "here"), names)


def test_published_config_equals_preset():
    found, ours = read(PUBLISHED), bert("base")
    for name in compared_fields(ours):
        assert getattr(found, name) == getattr(ours, name), name
    assert found.dropout == ours.dropout


HEADS = [
    (["BertForMaskedLM"], SENTENCE, Pretraining()),  # more than it declares
    (["BertForMaskedLM"], {"bert.pooler.dense.weight"}, MaskedToken()),
    (["BertForPreTraining"], SENTENCE, Pretraining()),
    (["BertModel"], {"bert.pooler.dense.weight"}, Features(pool="pooler")),
    (["BertModel"], set(), Features(pool="mean")),
    (None, SENTENCE, Features(pool="pooler")),
]


@pytest.mark.parametrize(("architectures", "names", "head"), HEADS)
def test_head_is_inferred_from_architecture_and_tensors(architectures, names, head):
    assert read({**PUBLISHED, "architectures": architectures}, names).head == head


def test_classifier_reads_label_names():
    settings = {**PUBLISHED, "architectures": ["BertForSequenceClassification"]}
    assert read(settings).head == Classifier(classes=2, pool="pooler", names=("LABEL_0", "LABEL_1"))
    labels = {"0": "bad", "1": "fair", "2": "good"}
    found = read({**settings, "id2label": labels, "label2id": {}}).head
    assert found == Classifier(classes=3, pool="pooler", names=("bad", "fair", "good"))
    for wrong in (
        {"0": "a", "2": "b"},
        {"0": "a", "1": "a"},
        {"0": "a", "1": "\ud800"},
        ["a"],
        5,
        True,
    ):
        with pytest.raises(ValueError, match="it must name the classes 0 to 1"):
            read({**settings, "id2label": wrong})


def test_rejects_untied_embeddings_only_for_masked_models():
    """A body or a classifier has no such weight; a masked model without it is another one."""
    untied = {**PUBLISHED, "tie_word_embeddings": False}
    assert read({**untied, "architectures": ["BertModel"]}).head == Features(pool="pooler")
    with pytest.raises(ValueError, match="tie_word_embeddings"):
        read(untied)


@pytest.mark.parametrize(
    "head",
    [
        Pretraining(),
        MaskedToken(),
        Features(pool="pooler"),
        Features(),
        Classifier(classes=2, pool="pooler", names=("a", "b")),
    ],
)
def test_config_round_trip(head, small):
    ours = small("bert", head=head)
    names = {
        Pretraining: SENTENCE,
        MaskedToken: set(),
        Features: {"bert.pooler.dense.weight"} if head == Features(pool="pooler") else set(),
        Classifier: {"bert.pooler.dense.weight"},
    }[type(head)]
    found = read(BERT.write_config(ours), names)
    for name in compared_fields(ours):
        assert getattr(found, name) == getattr(ours, name), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("hidden_act", "quick_gelu"),
        ("tie_word_embeddings", False),
        ("architectures", ["BertForWatchmaking"]),
        ("architectures", [5]),
        ("hidden_size", 10**9),
        ("add_cross_attention", True),
        ("pruned_heads", {"0": [1]}),
    ],
)
def test_rejects_unsupported_settings(name, value):
    with pytest.raises(ValueError, match=name):
        read({**PUBLISHED, name: value})
