"""A checkpoint's tokenizer, from the files it may come in, and as a tokenizer.json to others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clearformer import limits
from clearformer.hub.tensors import read_json
from clearformer.text import BytePairs, Bytes, Tokenizer, WordPieces
from clearformer.text.library import write_byte_pairs, write_template
from clearformer.text.parts import SPECIALS, BytePairParts, WordPieceParts, byte_characters
from clearformer.text.pieces import LibraryTokenizer

END = "<|endoftext|>"
PAIR_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
BYTES = BytePairParts(byte_characters(), ())  # the bytes themselves, as a BPE without merges


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a Hugging Face folder; None if it has no file of one."""
    try:
        if (folder / "tokenizer.json").exists():
            return _from_document(folder)
        for vocabulary, merges in PAIR_FILES:
            if (folder / vocabulary).exists() and (folder / merges).exists():
                return _byte_pairs(folder, vocabulary, merges)
        if (folder / "vocab.txt").exists():
            return _word_pieces(folder)
    except ValueError as problem:
        sentence = str(problem)
        known = sentence.startswith(str(folder))
        raise ValueError(sentence if known else f"{folder}: its tokenizer: {sentence}") from None
    return None


def _from_document(folder: Path) -> Tokenizer:
    document = read_json(folder / "tokenizer.json")
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ValueError("tokenizer.json is not one of the tokenizers library")
    # How long a text may be and how rows are filled up is settled elsewhere.
    document = {k: v for k, v in document.items() if k not in ("truncation", "padding")}
    match document["model"].get("type"):
        case "BPE":
            # A byte-level tokenizer knows every byte, so an unknown token never comes up.
            model = {k: v for k, v in document["model"].items() if k != "unk_token"}
            pairs = BytePairs.from_library({**document, "model": model})
            return Bytes() if pairs.parts == BYTES else pairs
        case "WordPiece":
            pieces = WordPieces.from_library(document)
            asked = _config(folder).get("do_lower_case")
            if asked is not None and asked is not pieces.parts.lowercase:
                raise ValueError(
                    f"tokenizer_config.json sets do_lower_case to {asked!r:.20}, and "
                    f"tokenizer.json lowercase to {pieces.parts.lowercase}: they contradict"
                )
            return pieces
        case kind:
            raise ValueError(f"it is a {kind!r:.40}, but only BPE and WordPiece are supported")


def _byte_pairs(folder: Path, vocabulary: str, merges: str) -> BytePairs:
    """GPT-2's own two files, by either of their names."""
    if _config(folder).get("add_prefix_space") not in (None, False):
        raise ValueError("add_prefix_space is on, which is not supported")
    ids = read_json(folder / vocabulary)
    numbers = list(ids.values()) if isinstance(ids, dict) else []
    whole = all(type(number) is int for number in numbers)
    if not ids or not whole or sorted(numbers) != list(range(len(numbers))):
        raise ValueError(f"{vocabulary} does not give each token a number from 0 on")
    lines = _lines(folder / merges)
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise ValueError(f"{merges} has the line {' '.join(wrong)!r:.60}, but a merge is of two")
    return BytePairs(
        BytePairParts(
            vocabulary=tuple(sorted(ids, key=ids.__getitem__)),
            merges=tuple((first, second) for first, second in pairs),
            specials=(END,) if END in ids else (),
        )
    )


def _word_pieces(folder: Path) -> WordPieces:
    """BERT's own file: a token on each line, its number the line's."""
    config = _config(folder)
    tokens = _lines(folder / "vocab.txt")
    while tokens and not tokens[-1]:
        tokens.pop()
    lowercase = config.get("do_lower_case", True)
    chinese = config.get("tokenize_chinese_chars", True)
    accents = config.get("strip_accents")
    for name, value in (("do_lower_case", lowercase), ("tokenize_chinese_chars", chinese)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r:.40}, but it must be true or false")
    return WordPieces(
        WordPieceParts(
            vocabulary=tuple(tokens),
            lowercase=lowercase,
            strip_accents=None if accents is None else accents is True,
            separate_chinese=chinese,
        )
    )


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    found = read_json(path) if path.exists() else {}
    return found if isinstance(found, dict) else {}


def _lines(path: Path) -> list[str]:
    """Lines as these files mean them: only a line feed ends one."""
    try:
        if path.stat().st_size > limits.LARGEST_JSON or not path.is_file():
            raise ValueError(
                f"{path} is no file, or has more than {limits.LARGEST_JSON:,} bytes (LARGEST_JSON)"
            )
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8") from None


# --- to others -----------------------------------------------------------------------------


def write_tokenizer(tokenizer: Tokenizer, folder: Path, length: int) -> dict[str, int | None]:
    """Write tokenizer.json and its config; returns the ids that a model's config names."""
    document, names = _document(tokenizer)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        **names,
    }
    for name, content in (("tokenizer.json", document), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(content), encoding="ascii")
    ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    return {
        f"{role}_id": ids.get(names[role]) if role in names else None
        for role in ("bos_token", "eos_token", "pad_token")
    }


def _document(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The library's JSON, and which special token plays which role."""
    match tokenizer:
        case Bytes():
            return _complete(write_byte_pairs(BYTES)), _inputs()
        case BytePairs(parts=parts):
            roles = _inputs()
            if parts.opening:
                roles["bos_token"] = parts.opening[0]
            if END in parts.specials:
                roles |= {"bos_token": END, "eos_token": END}
            return _complete(tokenizer.document), roles
        case WordPieces(parts=parts):
            post = write_template(parts, ("[CLS]",), ("[SEP]",))
            roles = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
            inputs = _inputs("token_type_ids")
            return _complete({**tokenizer.document, "post_processor": post}), roles | inputs
        case _:
            assert not isinstance(tokenizer, LibraryTokenizer)
            raise ValueError(
                f"a {tokenizer.kind} tokenizer has no form that other tools open: those of bytes, "
                f"bpe and wordpiece have; --to safetensors keeps any"
            )


def _inputs(*more: str) -> dict[str, Any]:
    """What the tokenizer gives: a generator reads one text, so its segments need no numbers."""
    return {"model_input_names": ["input_ids", *more, "attention_mask"]}


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    """With every stage named: readers of some years want them all."""
    stages = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {**dict.fromkeys(stages), **document}
