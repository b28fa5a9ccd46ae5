"""Byte pairs and WordPiece: lossless where promised, and deterministic training."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from clearformer.text.specs import (
    PATTERNS,
    SPECIALS,
    BytePairSpec,
    WordPieceSpec,
    byte_characters,
)
from clearformer.text.subwords import BytePairs, WordPieces
from clearformer.text.tokenizer import sha256

LEARN = """
import sys
from pydoc_data.topics import topics
from clearformer.text import sha256, train
prose = [topics[name] for name in sorted(topics)[:25]]
print(sha256(train("bpe", prose, 500)), sha256(train("wordpiece", prose, 700)))
"""


@pytest.fixture(scope="module")
def pairs(prose):
    return BytePairs.train([prose], 600)


@pytest.fixture(scope="module")
def pieces(prose):
    return WordPieces.train([prose], 700)


def test_training_is_deterministic_across_processes():
    """The order of the library's hash tables differs between processes and must have no effect."""
    outputs = set()
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        outputs.add(subprocess.check_output([sys.executable, "-c", LEARN], env=environment))
    assert len(outputs) == 1


def learned_slowly(texts, size, best):
    """Byte pairs as a textbook learns them; `best` chooses among the counted pairs."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    counts = Counter(word for text in texts for word, _ in split(text))
    words = {word: list(word) for word in counts}
    vocabulary = sorted(byte_characters())
    merges = []
    while len(vocabulary) < size:
        ids = {token: i for i, token in enumerate(vocabulary)}
        pairs = Counter()
        for word, tokens in words.items():
            for pair in pairwise(tokens):
                pairs[pair] += counts[word]
        if not pairs:
            break
        chosen = best(pairs, ids)
        merges.append(chosen)
        if "".join(chosen) not in ids:
            vocabulary.append("".join(chosen))
        for word, tokens in words.items():
            words[word] = merged(tokens, chosen)
    return tuple(vocabulary), tuple(merges)


def merged(tokens, pair):
    found = []
    for token in tokens:
        if found and (found[-1], token) == pair:
            found[-1] = "".join(pair)
            # The joined token is not the first of another such pair.
            found.append(None)
        else:
            found.append(token)
    return [token for token in found if token is not None]


def lower_ids(pairs, ids):
    return min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))


def greater_bytes(pairs, ids):
    """The rule of Stanford's CS336."""
    number = {character: byte for byte, character in enumerate(byte_characters())}

    def key(pair):
        return pairs[pair], *(bytes(number[letter] for letter in token) for token in pair)

    return max(pairs, key=key)


def texts_full_of_ties():
    chance = random.Random(0)
    for _ in range(100):
        alphabet = chance.choice(("ab", "abc", "abcdefgh", "aé漢", ".,ab"))
        texts = [
            "".join(chance.choices(alphabet + " ", k=chance.randint(1, 80)))
            for _ in range(chance.randint(1, 4))
        ]
        yield texts, 256 + chance.randint(1, 30)


def test_merge_ties_are_resolved_by_id():
    """Like the `tokenizers` library, but unlike some other implementations."""
    differs = 0
    for texts, size in texts_full_of_ties():
        ours = BytePairs.train(texts, size).spec
        found = ours.vocabulary, ours.merges
        assert found == learned_slowly(texts, size, lower_ids), (texts, size)
        differs += found != learned_slowly(texts, size, greater_bytes)
    assert differs > 50
    assert BytePairs.train(["ab cd ab cd"], 257).spec.merges == (("a", "b"),)
    assert learned_slowly(["ab cd ab cd"], 257, greater_bytes)[1] == (("c", "d"),)


def test_merge_ties_match_tokenizers_library():
    from tokenizers import Tokenizer, models, trainers

    for texts, size in texts_full_of_ties():
        library = Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        library.train_from_iterator(
            texts,
            trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False),
        )
        ours = BytePairs.train(texts, size).spec
        assert [list(pair) for pair in ours.merges] == json.loads(library.to_str())["model"][
            "merges"
        ]


def test_merge_ties_do_not_depend_on_text_order():
    for texts, size in list(texts_full_of_ties())[::5]:
        for kind, least in ((BytePairs, 0), (WordPieces, 64 - 256)):
            learned = {sha256(kind.train(each, size + least)) for each in (texts, texts[::-1])}
            assert len(learned) == 1, texts


def test_sha256_values_are_stable():
    """A model folder of today must open in ten years: these numbers are part of the format."""
    alphabet = tuple(sorted(byte_characters()))
    assert sha256(BytePairs(BytePairSpec(alphabet, ()))) == (
        "0fc3a82624322221b1bbda464e12d02cf3fc1f1747b2fcdc8136db40cd9aebcb"
    )
    assert sha256(WordPieces(WordPieceSpec(SPECIALS))) == (
        "6382e285ffbeb11c0c29c9fb866abb48a2747b0f3544ae44f732c9d1a7b3a1bb"
    )


def test_byte_pairs_round_trip(pairs, strange_texts):
    for text in strange_texts:
        assert pairs.decode(pairs.encode(text)) == text


def test_byte_pairs_merge_common_sequences(pairs, prose):
    assert pairs.size == 600
    assert len(pairs.encode(prose)) < 0.5 * len(prose)
    assert " the" in pairs.pieces(pairs.encode("on the table"))
    assert pairs.pieces(pairs.encode("漢")) == ["\ufffd"] * 3


def test_special_token_in_text_is_not_parsed(pairs):
    end = "<|endoftext|>"
    parts = pairs.spec
    special = BytePairs(BytePairSpec((*parts.vocabulary, end), parts.merges, specials=(end,)))
    assert special.specials == {end: 600}
    ids = special.encode(f"a{end}b")
    assert 600 not in ids
    assert special.decode(ids) == f"a{end}b"
    assert special.decode([*special.encode("a"), 600]) == f"a{end}"


def test_rejects_vocabulary_smaller_than_bytes():
    with pytest.raises(ValueError, match="a bpe tokenizer is 255, but it must be at least 256"):
        BytePairs.train(["abc"], 255)
    assert BytePairs.train(["abc"], 256).size == 256


def test_word_pieces_split_words_into_continuations(pieces):
    ids = pieces.encode("The statements are overvalued")
    shown = pieces.pieces(ids)
    assert shown[0] == "the"
    assert any(piece.startswith("##") for piece in shown)
    assert "".join(piece.removeprefix("##") for piece in shown) == "thestatementsareovervalued"
    assert pieces.decode(ids) == "the statements are overvalued"


def test_word_pieces_special_tokens(pieces):
    assert [pieces.specials[name] for name in SPECIALS] == [0, 1, 2, 3, 4]
    assert (pieces.padding, pieces.prefix_ids, pieces.suffix_ids) == (0, (2,), (3,))
    assert pieces.pieces(pieces.encode("the [MASK] is 漢")) == ["the", "[MASK]", "is", "[UNK]"]


def test_mask_token_and_is_continuation(pieces, pairs):
    assert pieces.mask == 4
    continues = pieces.is_continuation()
    shown = pieces.pieces(range(pieces.size))
    assert [piece.startswith("##") for piece in shown] == continues.tolist()
    assert (pairs.mask, pairs.is_continuation().any()) == (None, False)


def test_lowercase_option(prose):
    assert "the" in WordPieces.train([prose + "É"], 300).spec.vocabulary
    cased = WordPieces.train([prose + "É" * 9], 300, lowercase=False)
    assert {"T", "É"} <= set(cased.spec.vocabulary)
    assert cased.pieces(cased.encode("T É")) == ["T", "É"]


def test_characters_beyond_the_limit_are_unknown():
    many = [chr(code) for code in range(0x4E00, 0x4E00 + 200)]
    small = WordPieces.train(["".join(many), many[7] * 9], 64)
    assert small.size <= 64
    assert small.pieces(small.encode(many[7] + many[199])) == [many[7], "[UNK]"]
    with pytest.raises(ValueError, match="a wordpiece tokenizer is 63, but it must be at least 64"):
        WordPieces.train(["a"], 63)


@pytest.fixture(scope="module")
def folder():
    place = os.environ.get("CLEARFORMER_DATA")
    if not place:
        pytest.skip("CLEARFORMER_DATA does not name a folder with gpt2/ and bert/")
    return Path(place)


def test_published_gpt2_matches_transformers(folder, strange_texts):
    """The published vocabulary and merges, against the reference implementation."""
    import json

    from transformers import GPT2Tokenizer

    source = folder / "gpt2"
    if not source.is_dir():
        pytest.skip(f"{source} is not there")
    vocabulary = json.loads((source / "encoder.json").read_text(encoding="utf-8"))
    lines = (source / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    ordered = tuple(sorted(vocabulary, key=vocabulary.__getitem__))
    merges = tuple((a, b) for a, b in (line.split(" ") for line in lines))
    ours = BytePairs(BytePairSpec(ordered, merges, specials=("<|endoftext|>",)))
    assert ours.encode("Hello world, it's 2024").tolist() == [15496, 995, 11, 340, 338, 48609]
    theirs = GPT2Tokenizer(str(source / "encoder.json"), str(source / "vocab.bpe"))
    for text in strange_texts:
        if "<|endoftext|>" not in text:
            assert ours.encode(text).tolist() == theirs.encode(text)


def test_published_bert_matches_transformers(folder, strange_texts):
    from transformers import BertTokenizer

    source = folder / "bert" / "vocab.txt"
    if not source.is_file():
        pytest.skip(f"{source} is not there")
    words = tuple(source.read_text(encoding="utf-8").split("\n")[:-1])
    ours = WordPieces(WordPieceSpec(words))
    row = np.concatenate((ours.prefix_ids, ours.encode("Walking, don't you?"), ours.suffix_ids))
    assert row.tolist() == [101, 3788, 1010, 2123, 1005, 1056, 2017, 1029, 102]
    theirs = BertTokenizer(str(source))
    for text in strange_texts:
        assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False)


def test_encode_with_specials_parses_special_tokens(pairs, pieces):
    end = "<|endoftext|>"
    parts = pairs.spec
    special = BytePairs(BytePairSpec((*parts.vocabulary, end), parts.merges, specials=(end,)))
    marked = special.encode_with_specials(f"a{end}{end}b").tolist()
    assert marked == [*pairs.encode("a"), 600, 600, *pairs.encode("b")]
    assert pairs.encode_with_specials(f"a{end}").tolist() == pairs.encode(f"a{end}").tolist()
    text = "the [MASK] of it"
    assert pieces.encode_with_specials(text).tolist() == pieces.encode(text).tolist()


def test_prefix_is_not_part_of_encode(pairs):
    parts = pairs.spec
    vocabulary = (*parts.vocabulary, "<s>")
    opened = BytePairs(BytePairSpec(vocabulary, parts.merges, specials=("<s>",), prefix=("<s>",)))
    assert opened.prefix_ids == (600,)
    assert opened.encode("a").tolist() == pairs.encode("a").tolist()
    assert sha256(BytePairs.from_library(opened.document)) == sha256(opened)
    with pytest.raises(ValueError, match="the prefix '<s>' is not a special token"):
        BytePairSpec(vocabulary, parts.merges, prefix=("<s>",))


def with_specials(tokenizer, *names, **values):
    parts = tokenizer.spec
    vocabulary = (*parts.vocabulary, *names, *values.get("added", ()))
    specials = (*parts.specials, *names)
    return type(tokenizer)(replace(parts, vocabulary=vocabulary, specials=specials, **values))


@pytest.mark.parametrize("normal_form", [None, "NFC"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_byte_pairs_stream_equals_whole_text(pairs, require_equal_streams, pattern, normal_form):
    """Also of texts in which a special token's name has a space, or a token is found whole."""
    names = "<|endoftext|>", "<|endoftext|><|endoftext|>", "a b", "[my, token]"
    values = {"added": ("<think>",), "pattern": pattern, "normal_form": normal_form}
    ours = with_specials(pairs, *names, **values)
    require_equal_streams(ours.encode_stream, ours.encode)


def test_word_pieces_stream_equals_whole_text(pieces, require_equal_streams):
    ours = with_specials(pieces, "[my, token]", "a b")
    require_equal_streams(ours.encode_stream, ours.encode)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_stream_parses_end_of_text_only_if_requested(pairs, size):
    """As tiktoken with allowed_special; in untrusted text it is plain text."""
    double = "<|endoftext|><|endoftext|>"
    ours = with_specials(pairs, "<|endoftext|>", double)
    text = f"one<|endoftext|>two{double}🙃 {double}<|endoftext|>"
    data = text.encode()
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    one, two = ours.specials["<|endoftext|>"], ours.specials[double]
    ids = ours.encode_with_specials(text).tolist()
    assert [i for i in ids if i in (one, two)] == [one, two, two, one]
    assert ours.decode(ids) == text
    plain = np.concatenate(list(ours.encode_stream(chunks))).tolist()
    assert not {one, two} & set(plain)
    assert plain == ours.encode(text).tolist()
