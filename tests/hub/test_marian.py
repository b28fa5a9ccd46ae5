"""Marian configs, tensor names and beam search, equal to transformers."""

import dataclasses
import json
from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.config import Biases, GenerationDefaults, Sinusoidal
from clearformer.core.model import PairBatch
from clearformer.data.pairs import pad
from clearformer.generate.beam import Beam
from clearformer.generate.translate import decode
from clearformer.hub.export_family import compared_fields
from clearformer.hub.exporting import to_huggingface
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.importing import import_checkpoint
from clearformer.hub.marian import MARIAN, to_marian
from clearformer.text import Bytes

# As the published files have it, with smaller numbers.
PUBLISHED = {
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "swish",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"],
    "attention_dropout": 0.0,
    "bad_words_ids": [[59]],
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "d_model": 16,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 24,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 2,
    "decoder_start_token_id": 59,
    "decoder_vocab_size": 60,
    "dropout": 0.1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 3,
    "eos_token_id": 0,
    "extra_pos_embeddings": 60,
    "forced_eos_token_id": 0,
    "id2label": {"0": "LABEL_0"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0},
    "max_length": 40,
    "max_position_embeddings": 40,
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "num_beams": 6,
    "num_hidden_layers": 3,
    "pad_token_id": 59,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True,
    "transformers_version": "4.22.0",
    "use_cache": True,
    "vocab_size": 60,
}
SIZES = {
    name: PUBLISHED[name]
    for name in PUBLISHED
    if name.startswith(("encoder_", "decoder_", "d_model", "vocab", "max_pos", "pad", "eos"))
}


def read_settings(**changes):
    names = {"final_logits_bias"}
    return MARIAN.read_config(HFConfig({**PUBLISHED, **changes}, "here"), names)


def read_generation(**changes):
    settings = HFConfig({**PUBLISHED, **changes}, "here")
    return MARIAN.read_generation(settings, MARIAN.read_config(settings, ()))


def test_reads_published_config():
    found = read_settings()
    assert (found.layers, found.decoder_layers, found.width, found.heads) == (3, 2, 16, 4)
    assert (found.activation, found.embedding_scale, found.residual) == (
        "silu",
        "sqrt_width",
        "post",
    )
    assert found.position == Sinusoidal(order="halves")
    assert read_generation() == GenerationDefaults(
        start_id=59, end_ids=(0,), banned_ids=(59,), force_end=True, max_tokens=39
    )
    assert found.biases == Biases(head=True)
    assert read_settings(scale_embedding=False).embedding_scale == "one"


def test_generation_config_overrides_config(tmp_path):
    writing = {"max_length": 30, "renormalize_logits": True, "no_repeat_ngram_size": 3}
    (tmp_path / "generation_config.json").write_text(json.dumps(writing))
    data = MARIAN.merge_files(tmp_path, PUBLISHED)
    settings = HFConfig(data, "here")
    found = MARIAN.read_generation(settings, MARIAN.read_config(settings, ()))
    assert found == GenerationDefaults(
        start_id=59, end_ids=(0,), banned_ids=(), renormalize=True, max_tokens=29
    )
    assert "no_repeat_ngram_size=3" in " ".join(MARIAN.notes(data))
    (tmp_path / "generation_config.json").unlink()
    assert "--beam 6" in " ".join(MARIAN.notes(MARIAN.merge_files(tmp_path, PUBLISHED)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("normalize_before", True),
        ("normalize_embedding", True),
        ("static_position_embeddings", False),
        ("share_encoder_decoder_embeddings", False),
        ("tie_word_embeddings", False),
        ("is_encoder_decoder", False),
        ("decoder_attention_heads", 2),
        ("decoder_ffn_dim", 32),
        ("decoder_vocab_size", 61),
        ("activation_function", "mish"),
        ("eos_token_id", [0, 1]),
        ("eos_token_id", 60),
        ("decoder_start_token_id", -1),
        ("bad_words_ids", [[1, 2]]),
        ("bad_words_ids", [[77]]),
        ("forced_eos_token_id", 5),
        ("max_length", 0),
        ("d_model", 10**9),
        ("hidden_size", 7),  # a second name of d_model
    ],
)
def test_rejects_unsupported_settings(name, value):
    with pytest.raises(ValueError, match=name):
        read_generation(**{name: value})


# --- the same numbers ----------------------------------------------------------------------


@pytest.fixture
def theirs(transformers, scrambled, tmp_path):
    """A random model of theirs, and our reading of its folder."""

    def make(seed=0, generation=(), **changes):
        torch.manual_seed(seed)
        settings = {**SIZES, "activation_function": "swish", "scale_embedding": True, **changes}
        model = scrambled(transformers.MarianMTModel(transformers.MarianConfig(**settings)))
        with torch.no_grad():
            model.final_logits_bias.normal_(std=0.3)
            for stack in (model.model.encoder, model.model.decoder):
                stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())
        for name, value in dict(generation).items():
            setattr(model.generation_config, name, value)
        model.eval().save_pretrained(tmp_path / f"theirs-{seed}")
        return model, import_checkpoint(tmp_path / f"theirs-{seed}", tokenizer=None)

    return make


def sources(seed, count=5):
    chance = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (count,), generator=chance).tolist()
    return [[*torch.randint(1, 59, (n,), generator=chance).tolist(), 0] for n in lengths]


def padded(rows):
    tokens, attention_mask = (torch.from_numpy(each) for each in pad(rows))
    return tokens.masked_fill(~attention_mask, 59), attention_mask


@pytest.mark.parametrize(
    ("seed", "changes"),
    [(0, {}), (1, {"activation_function": "relu", "scale_embedding": False})],
)
def test_logits_and_gradients_match_transformers(theirs, seed, changes):
    model, found = theirs(seed, **changes)
    ours = found.model()
    tokens, attention_mask = padded(sources(seed))
    target, target_attention_mask = padded(sources(seed + 50))
    expected = model(
        tokens,
        attention_mask=attention_mask.long(),
        decoder_input_ids=target,
        decoder_attention_mask=target_attention_mask.long(),
    ).logits
    given = ours(tokens, target, attention_mask, target_attention_mask)
    torch.testing.assert_close(
        given[target_attention_mask], expected[target_attention_mask], atol=1e-5, rtol=1e-5
    )
    labels = target.roll(-1, 1).masked_fill(~target_attention_mask, -100)
    total, count = ours.loss(
        PairBatch(tokens, target, labels, attention_mask, target_attention_mask)
    )
    (total / count).sum().backward()
    model.zero_grad()
    model(
        tokens, attention_mask=attention_mask.long(), decoder_input_ids=target, labels=labels,
        decoder_attention_mask=target_attention_mask.long(),
    ).loss.backward()  # fmt: skip
    torch.testing.assert_close(
        ours.source_embedding.token.weight.grad,
        model.model.shared.weight.grad,
        atol=1e-4,
        rtol=1e-4,
    )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (4, 1.0), (3, 0.4)])
@pytest.mark.parametrize(
    "generation",
    [{}, {"bad_words_ids": [[59]], "renormalize_logits": True}, {"forced_eos_token_id": None}],
)
def test_greedy_and_beam_search_match_transformers(theirs, seed, beams, penalty, generation):
    """Greedily and with a beam, as their own settings ask for it, cut at a limit or not."""
    model, found = theirs(seed, generation)
    rows = sources(seed)
    tokens, attention_mask = padded(rows)
    expected = model.generate(
        tokens,
        attention_mask=attention_mask.long(),
        num_beams=beams,
        length_penalty=penalty,
        max_new_tokens=20,
        do_sample=False,
        early_stopping=False,
    )
    beam = Beam(width=beams, length_penalty=penalty)
    given = decode(found.model(), found.config, found.generation, rows, beam, 20)
    assert [list(each[0].tokens) for each in given] == [cut(row) for row in expected.tolist()]


def cut(row):
    """Without the start and the end mark, and what fills up the row."""
    row = row[1:]
    if 0 in row:
        return row[: row.index(0)]
    return row


def test_accepts_sinusoidal_tables_in_file_and_rejects_others(theirs, transformers, tmp_path):
    """Tables of positions are known by their values, and others are refused."""
    from safetensors.torch import load_file, save_file

    model, found = theirs(3)
    path = tmp_path / "theirs-3/model.safetensors"
    tensors = load_file(path)
    table = model.model.encoder.embed_positions.weight.detach()
    save_file({**tensors, "model.encoder.embed_positions.weight": table.clone()}, path)
    assert import_checkpoint(path.parent).config == found.config
    save_file({**tensors, "model.decoder.embed_positions.weight": table + 0.1}, path)
    with pytest.raises(ValueError, match=r"decoder.embed_positions.weight is not the table of"):
        import_checkpoint(path.parent)
    save_file({**tensors, "model.decoder.embed_positions.weight": table[:7].clone()}, path)
    with pytest.raises(ValueError, match=r"decoder.embed_positions.weight has shape"):
        import_checkpoint(path.parent)
    other = tensors["model.shared.weight"] + 1
    save_file({**tensors, "lm_head.weight": other}, path)
    with pytest.raises(ValueError, match=r"lm_head.weight and model.shared.weight are one tensor"):
        import_checkpoint(path.parent)


# --- out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["turns", "halves"])
@pytest.mark.parametrize("bias", [True, False])
def test_exported_model_opens_in_transformers(
    small, scrambled, transformers, tmp_path, order, bias
):
    biases = Biases(head=True) if bias else Biases(attention=False, attention_output=False)
    config = small(
        "original",
        vocabulary=258,
        length=40,
        biases=biases,
        position=Sinusoidal(order=order),
        residual="post",
    )
    generation = GenerationDefaults(start_id=257, end_ids=(256,))
    ours = scrambled(build(config)).eval()
    done = to_huggingface(ours, config, generation, Bytes(), tmp_path / "out")
    assert (done.form, done.notes) == ("MarianMTModel", ())
    model, about = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    missing = set(about["missing_keys"]) - {"final_logits_bias"}
    assert not missing
    assert not about["unexpected_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    rows = [tokenizer.encode(text) for text in ("two dogs", "a", "naïve words")]
    assert rows[0] == [*b"two dogs", 256]
    tokens, attention_mask = padded(rows)
    for beams in (1, 4):
        expected = model.generate(
            tokens, attention_mask=attention_mask.long(), num_beams=beams, max_new_tokens=12
        )
        given = decode(ours, config, generation, rows, Beam(width=beams), 12)
        assert [list(each[0].tokens) for each in given] == [
            [token for token in row[1:] if token < 256] for row in expected.tolist()
        ]
    again = import_checkpoint(tmp_path / "out")
    assert again.generation == replace(generation, banned_ids=(257,), max_tokens=40)
    assert again.tokenizer.encode("two dogs").tolist() == [*b"two dogs"]


def test_config_round_trip():
    ours = read_settings()
    again = MARIAN.read_config(HFConfig(MARIAN.write_config(ours), "here"), {"final_logits_bias"})
    assert again == dataclasses.replace(ours, name="marian")
    assert {name: getattr(again, name) for name in compared_fields(ours)}
    generation = read_generation()
    written = MARIAN.write_generation(ours, generation)
    assert MARIAN.read_generation(HFConfig(written, "here"), ours) == generation


def test_rejects_export_of_untrained_translator(small, tmp_path):
    config = small("original", residual="post")
    with pytest.raises(ValueError, match=r"its start and end tokens are unknown.*: train it first"):
        to_huggingface(build(config), config, GenerationDefaults(), Bytes(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_to_marian_leaves_halves_order_unchanged(small):
    config = small("original", position=Sinusoidal(order="halves"), residual="post")
    found, tensors = to_marian(config, {"encoder.blocks.0.attention.output.weight": torch.eye(4)})
    assert found.position == config.position
    assert tensors["encoder.blocks.0.attention.output.weight"].equal(torch.eye(4))
    assert tensors["encoder.blocks.0.attention.output.bias"].equal(torch.zeros(4))
