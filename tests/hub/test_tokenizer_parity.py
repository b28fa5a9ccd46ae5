"""Tokenizers as transformers saves them: same ids after repeated round trips."""

import json

import pytest

from clearformer.hub.tokenizer_files import read_tokenizer, write_tokenizer
from clearformer.text import ByteFallbackPairs, BytePairs, WordPieces, sha256
from clearformer.text.byte_fallback import BYTES, SPACE

TEXTS = (
    "A first_few words, don't you?", " spaced  out\n", "naïve ✨ 2024", "Hello\n\n\ttab 12345",
    "I'LL go ÀÉ caf\u0065\u0301 中文", "",
)  # fmt: skip


def fallback_vocabulary(prose):
    """Merges over characters, with every byte beside them, as Llama 2 has them."""
    from tokenizers import Tokenizer, models, trainers

    library = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False)
    words = prose.replace(" ", SPACE)
    library.train_from_iterator([line for line in words.splitlines() if line], trainer)
    learned = json.loads(library.to_str())["model"]
    tokens = dict.fromkeys(("<unk>", "<s>", "</s>", *BYTES, *learned["vocab"]))
    merges = [tuple(merge) for merge in learned["merges"]]
    return {token: i for i, token in enumerate(tokens)}, merges


@pytest.fixture(scope="session")
def tokenizers_of(transformers, prose, pairs, pieces):
    """Tokenizers of theirs by name, each with its model_type and our class."""
    parts = pairs.spec
    byte_level = {
        "vocab": {token: i for i, token in enumerate(parts.vocabulary)},
        "merges": list(parts.merges),
    }
    words = {"vocab": {token: i for i, token in enumerate(pieces.spec.vocabulary)}}
    vocabulary, merges = fallback_vocabulary(prose)
    fallback = {"vocab": vocabulary, "merges": merges}
    t = transformers
    return {
        "gpt2": ("gpt2", BytePairs, t.GPT2Tokenizer(**byte_level)),
        "gpt2-padded": ("gpt2", BytePairs, t.GPT2Tokenizer(**byte_level, pad_token="[PAD]")),
        "gpt2-opened": ("gpt2", BytePairs, t.GPT2Tokenizer(**byte_level, add_bos_token=True)),
        "bert": ("bert", WordPieces, t.BertTokenizer(**words)),
        "bert-cased": ("bert", WordPieces, t.BertTokenizer(**words, do_lower_case=False)),
        "qwen2": ("qwen2", BytePairs, t.Qwen2Tokenizer(**byte_level)),
        "qwen3": (
            "qwen3",
            BytePairs,
            t.Qwen2Tokenizer(**byte_level, eos_token="<|im_end|>"),
        ),
        "llama": ("llama", ByteFallbackPairs, t.LlamaTokenizer(**fallback)),
        "llama-padded": (
            "llama",
            ByteFallbackPairs,
            t.LlamaTokenizer(**fallback, pad_token="<pad>"),
        ),
    }


NAMES = (
    "gpt2", "gpt2-padded", "gpt2-opened", "bert", "bert-cased", "qwen2", "qwen3", "llama",
    "llama-padded",
)  # fmt: skip


def saved(tokenizer, kind, folder):
    tokenizer.save_pretrained(folder)
    about = {"model_type": kind, "vocab_size": len(tokenizer)}
    (folder / "config.json").write_text(json.dumps(about))
    return folder


def assert_alike(ours, theirs):
    assert ours.size == len(theirs)
    for text in TEXTS:
        ids = ours.encode(text).tolist()
        assert ids == theirs.encode(text, add_special_tokens=False), text
        assert [*ours.prefix_ids, *ids, *ours.suffix_ids] == theirs.encode(text), text


@pytest.mark.parametrize("name", NAMES)
def test_import_of_saved_tokenizer_matches_transformers(
    transformers, tokenizers_of, tmp_path, name
):
    kind, form, theirs = tokenizers_of[name]
    first = saved(theirs, kind, tmp_path / "first")
    ours = read_tokenizer(first)
    assert type(ours) is form
    assert_alike(ours, theirs)
    again = transformers.AutoTokenizer.from_pretrained(first)
    second = read_tokenizer(saved(again, kind, tmp_path / "second"))
    assert_alike(second, again)
    assert sha256(second) == sha256(ours)


@pytest.mark.parametrize("name", NAMES)
def test_export_and_reimport_is_stable(transformers, tokenizers_of, tmp_path, name):
    kind, _, theirs = tokenizers_of[name]
    ours = read_tokenizer(saved(theirs, kind, tmp_path / "first"))
    out = tmp_path / "out"
    out.mkdir()
    write_tokenizer(ours, out, 512)
    opened = transformers.PreTrainedTokenizerFast.from_pretrained(out)
    back = read_tokenizer(saved(opened, kind, tmp_path / "back"))
    assert_alike(back, opened)
    assert sha256(back) == sha256(ours)


def test_legacy_llama_tokenizer_saved_again(transformers, tokenizers_of, tmp_path):
    """`legacy` makes them put a space behind every special token, by another name."""
    _, _, theirs = tokenizers_of["llama"]
    first = saved(theirs, "llama", tmp_path / "first")
    settings = json.loads((first / "tokenizer_config.json").read_text())
    (first / "tokenizer_config.json").write_text(json.dumps({**settings, "legacy": True}))
    again = transformers.AutoTokenizer.from_pretrained(first)
    ours = read_tokenizer(saved(again, "llama", tmp_path / "second"))
    assert_alike(ours, transformers.AutoTokenizer.from_pretrained(tmp_path / "second"))
