"""Numerical parity with transformers, importing and exporting its own files."""

import pytest
import torch

from clearformer.config import GenerationDefaults
from clearformer.core.model import Batch
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream
from clearformer.hub.exporting import to_huggingface
from clearformer.hub.importing import import_checkpoint

ATTENTION_MASK = torch.arange(9) < torch.tensor([[9], [4], [1]])  # right-padded
GENERATORS = [
    "gpt2", "gpt2-untied", "llama", "llama-biased", "llama-linear", "llama-scaled", "mistral",
    "qwen2", "qwen2-windows", "qwen3", "llama-wide", "qwen3-wide",
]  # fmt: skip
ENCODERS = ["bert", "bert-masked", "bert-features", "bert-classes"]


def near(given, expected, within=1e-5):
    torch.testing.assert_close(given, expected, atol=within, rtol=within)


@pytest.fixture
def both(folder):
    def open_both(name):
        path, model = folder(name)
        return import_checkpoint(path), model

    return open_both


@pytest.mark.parametrize("name", GENERATORS)
def test_generator_logits_and_tokens_match_transformers(both, tokens, name):
    found, theirs = both(name)
    ours = found.model()
    with torch.no_grad():
        near(ours(tokens), theirs(tokens).logits)
        padded = theirs(tokens, attention_mask=ATTENTION_MASK.long()).logits
        near(ours(tokens, ATTENTION_MASK)[ATTENTION_MASK], padded[ATTENTION_MASK])
        expected = theirs.generate(
            tokens[:1], max_new_tokens=20, do_sample=False, attention_mask=torch.ones(1, 9)
        )
    drawn = stream(
        LanguageModel(ours, found.config, found.generation),
        tokens[0].tolist(),
        Sampling(temperature=0),
        max_tokens=20,
    )
    assert [token.id for token in drawn] == expected[0, 9:].tolist()


@pytest.mark.parametrize("name", GENERATORS)
def test_generator_gradients_match_transformers(both, tokens, name):
    found, theirs = both(name)
    ours = found.model()
    total, count = ours.loss(Batch(tokens[:, :-1], tokens[:, 1:]))
    (total / count).sum().backward()
    theirs(tokens, labels=tokens).loss.backward()
    assert_gradients_agree(ours, theirs, found)


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_outputs_match_transformers(both, tokens, name):
    """Padded rows and two kinds of segments included."""
    found, theirs = both(name)
    ours = found.model()
    segments = (torch.arange(9) > 3).long().expand(3, 9)
    arguments = {"attention_mask": ATTENTION_MASK.long(), "token_type_ids": segments}
    with torch.no_grad():
        expected = theirs(tokens, **arguments, output_hidden_states=True)
        near(
            ours.hidden(tokens, ATTENTION_MASK, segments)[ATTENTION_MASK],
            expected.hidden_states[-1][ATTENTION_MASK],
        )
        given = ours(tokens, ATTENTION_MASK, segments)
    match name:
        case "bert":
            near(given[0][ATTENTION_MASK], expected.prediction_logits[ATTENTION_MASK])
            near(given[1], expected.seq_relationship_logits)
        case "bert-masked":
            near(given[ATTENTION_MASK], expected.logits[ATTENTION_MASK])
        case "bert-features":
            near(given, expected.pooler_output)
        case "bert-classes":
            near(given, expected.logits)


def test_bert_gradients_match_transformers(both, tokens):
    found, theirs = both("bert")
    ours = found.model()
    segments = (torch.arange(9) > 3).long().expand(3, 9)
    hidden = torch.where((torch.arange(9) % 2 == 0) & ATTENTION_MASK, tokens, -100)
    follows = torch.tensor([0, 1, 1])
    sums, counts = ours.loss(Batch(tokens, (hidden, follows), ATTENTION_MASK, segments))
    (sums / counts).sum().backward()
    theirs(
        tokens,
        attention_mask=ATTENTION_MASK.long(),
        token_type_ids=segments,
        labels=hidden,
        next_sentence_label=follows,
    ).loss.backward()
    assert_gradients_agree(ours, theirs, found)


def assert_gradients_agree(ours, theirs, found):
    """Compare our gradients, split by the same table, with theirs."""
    from clearformer.hub.registry import family_of
    from clearformer.hub.tensor_names import their_names

    rows = family_of({"model_type": theirs.config.model_type}, "").renames(found.config)
    expected = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    for name, parameter in ours.named_parameters():
        names, layout = their_names(rows, name)
        for their_name, part in zip(names, layout.split(parameter.grad, found.config), strict=True):
            near(part, expected.pop(their_name), within=1e-4)
    assert not expected, "gradients of theirs that we do not have"


# --- and out again -------------------------------------------------------------------------

AUTO = {
    "bert": "AutoModelForPreTraining",
    "bert-masked": "AutoModelForMaskedLM",
    "bert-features": "AutoModel",
    "bert-classes": "AutoModelForSequenceClassification",
}


@pytest.mark.parametrize("name", [*GENERATORS, *ENCODERS])
def test_exported_checkpoint_opens_in_transformers(transformers, both, tokens, tmp_path, name):
    found, theirs = both(name)
    done = to_huggingface(
        found.model(), found.config, found.generation, found.tokenizer, tmp_path / "out"
    )
    assert done.form == type(theirs).__name__
    assert done.tokens == (50 if name in GENERATORS else 0)
    kind = getattr(transformers, AUTO.get(name, "AutoModelForCausalLM"))
    again, about = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(about.get(key) for key in ("missing_keys", "unexpected_keys", "error_msgs"))
    with torch.no_grad():
        given, expected = again.eval()(tokens), theirs(tokens)
    for key, value in expected.items():
        if isinstance(value, torch.Tensor):
            near(given[key], value, within=0)
    # transformers always uses Qwen2's tokenizer for a Qwen2; the export reports it.
    fast, auto = transformers.PreTrainedTokenizerFast, transformers.AutoTokenizer
    own = name.startswith("qwen2")
    assert any("AutoTokenizer" in note for note in done.notes) == own
    tokenizer = (fast if own else auto).from_pretrained(tmp_path / "out")
    assert len(tokenizer) == found.config.vocabulary
    for text in ("A first_few words, don't you?", " spaced  out\n", "naïve ✨ 2024"):
        expected = found.tokenizer.encode(text).tolist()
        assert tokenizer.encode(text, add_special_tokens=False) == expected


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize("normed", [True, False])
def test_exported_modern_model_opens_in_transformers(
    transformers, small, scrambled, tokens, tmp_path, normed, pairs
):
    """With a query-key norm it becomes a Qwen3, without one a Llama, for either rotary layout."""
    from dataclasses import replace

    from clearformer.builder import build
    from clearformer.config import Rotary
    from clearformer.text import Bytes

    config = small("modern", vocabulary=256, position=Rotary(base=300.0, pairs=pairs))
    if not normed:
        config = replace(config, query_key_norm=None)
    ours = scrambled(build(config)).eval()
    done = to_huggingface(ours, config, GenerationDefaults(), Bytes(), tmp_path / "out")
    assert done.form == ("Qwen3ForCausalLM" if normed else "LlamaForCausalLM")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        near(ours(tokens % 256), again(tokens % 256).logits)


def test_neighbour_pairs_are_permutation_of_halves(folder, tokens):
    path, _ = folder("llama")
    halves, neighbours = (
        import_checkpoint(path).model(),
        import_checkpoint(path, pairs="neighbours"),
    )
    assert not halves(tokens).allclose(neighbours.model()(tokens), atol=1e-3)
    from clearformer.builder import outline
    from clearformer.hub.llama import in_halves
    from clearformer.runs.state import adopt_weights

    config, tensors = in_halves(neighbours.config, neighbours.tensors)
    turned = outline(config)
    adopt_weights(turned, tensors, "here")
    near(turned.eval()(tokens), neighbours.model()(tokens))


@pytest.mark.parametrize("name", ["gelu_python", "gelu_fast", "silu", "relu2"])
@pytest.mark.parametrize(
    ("kind", "key"), [("gpt2", "activation_function"), ("bert-masked", "hidden_act")]
)
def test_activation_aliases_match_transformers(theirs, tokens, tmp_path, kind, key, name):
    model = theirs(kind, vocabulary=256, **{key: name})
    model.save_pretrained(tmp_path)
    ours = import_checkpoint(tmp_path, tokenizer="bytes").model()
    with torch.no_grad():
        near(ours(tokens % 256), model(tokens % 256).logits)
