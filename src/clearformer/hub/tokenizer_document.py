"""Reads tokenizer.json and checks it against the configuration files beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from clearformer.hub.tokenizer_config import (
    BERT,
    CONFIG,
    DEFAULT_TOKENS,
    GENERIC,
    GPT2,
    LLAMA,
    QWEN2,
    TokenizerConfig,
)
from clearformer.safe_json import read_json
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Tokenizer, WordPieces
from clearformer.text.hf_tokenizers import require_list
from clearformer.text.specs import BytePairSpec, WordPieceSpec, byte_characters

# Published embeddings have a multiple of 128 rows, and up to 421 unused ones.
ROW_MULTIPLE, MAX_SPARE_ROWS = 64, 512
# The split pattern and the Unicode normal form of a class.
CLASS_PATTERNS: dict[str, tuple[str, Literal["NFC"] | None]] = {
    GPT2: ("gpt2", None),
    QWEN2: ("qwen2", "NFC"),
}
BYTES = BytePairSpec(byte_characters(), ())  # a byte tokenizer as a BPE without merges


def read_tokenizer_document(path: Path, config: TokenizerConfig) -> Tokenizer:
    """The tokenizer in tokenizer.json, with these settings."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ValueError("tokenizer.json is not one of the tokenizers library")
    if "type" not in document["model"]:  # files of 2020
        kind = "BPE" if "merges" in document["model"] else "WordPiece"
        document["model"] = {**document["model"], "type": kind}
    # Truncation and padding are decided elsewhere.
    document = {k: v for k, v in document.items() if k not in ("truncation", "padding")}
    if _appends_eos(document.get("post_processor"), config):
        document["post_processor"] = None
    document["added_tokens"] = _added_tokens(document, config)
    match document["model"].get("type"):
        case "BPE" if document["model"].get("byte_fallback") is True:
            config.require_class("a BPE with byte_fallback", GENERIC, LLAMA)
            config.require_flag("add_prefix_space", True)
            if config.tokenizer_class == LLAMA:
                # This class does not normalize, so special tokens are matched in the raw text.
                document["added_tokens"] = [
                    {**token, "normalized": False} if isinstance(token, dict) else token
                    for token in document["added_tokens"]
                ]
            return ByteFallbackPairs.from_library(document)
        case "BPE":
            return _byte_level(document, config)
        case "WordPiece":
            return _word_level(document, config)
        case kind:
            raise ValueError(f"it is a {kind!r:.40}, but only BPE and WordPiece are supported")


def _byte_level(document: dict[str, Any], config: TokenizerConfig) -> Tokenizer:
    config.require_class("a byte-level BPE", GENERIC, GPT2, QWEN2, LLAMA)
    config.require_flag("add_prefix_space", False)
    # A byte-level tokenizer knows every byte, so nothing is unknown.
    model = {k: v for k, v in document["model"].items() if k != "unk_token"}
    pairs = BytePairs.from_library({**document, "model": model})
    spec = pairs.spec
    actual = spec.pattern, spec.normal_form, spec.ignore_merges
    # These two classes read only the vocabulary and the merges, and split in their own way.
    for name, (pattern, form) in CLASS_PATTERNS.items():
        if config.tokenizer_class == name and actual != (pattern, form, False):
            raise ValueError(
                f"tokenizer_class is {name!r}, which splits by the pattern {pattern} with the "
                f"normal form {form} and always merges, but tokenizer.json does not: name "
                f"{GENERIC}Fast if the file is right"
            )
    return Bytes() if spec == BYTES else BytePairs(pad_vocabulary(spec, config))


def pad_vocabulary(spec: BytePairSpec, config: TokenizerConfig) -> BytePairSpec:
    """Add a special token for every unused row: Qwen's embeddings are rounded up."""
    size, rows = len(spec.vocabulary), config.model.get("vocab_size")
    if config.model.get("model_type") not in ("qwen2", "qwen3") or not isinstance(rows, int):
        return spec
    if rows % ROW_MULTIPLE or not size < rows <= size + MAX_SPARE_ROWS:
        return spec
    spare = tuple(f"<|no token {number}|>" for number in range(size, rows))
    return replace(spec, vocabulary=spec.vocabulary + spare, specials=spec.specials + spare)


def _word_level(document: dict[str, Any], config: TokenizerConfig) -> Tokenizer:
    config.require_class("a WordPiece", GENERIC, BERT)
    if document.get("post_processor") is None and config.tokenizer_class != BERT:
        raise ValueError(
            "post_processor is null, so [CLS] and [SEP] would not be added, but a WordPiece "
            "tokenizer without them is not supported"
        )
    require_bert_roles(config)
    pieces = WordPieces.from_library(document)
    spec = pieces.spec
    is_bert = config.tokenizer_class == BERT  # which ignores the normalizer of tokenizer.json
    lowercase = config.flag_or("do_lower_case", True if is_bert else spec.lowercase)
    chinese = config.flag_or("tokenize_chinese_chars", True if is_bert else spec.split_chinese)
    accents = config.flag("strip_accents")
    if accents is None:
        accents = lowercase if is_bert else _strips(spec)
    for name, setting, actual in (
        ("do_lower_case", lowercase, spec.lowercase),
        ("tokenize_chinese_chars", chinese, spec.split_chinese),
        ("strip_accents", accents, _strips(spec)),
    ):
        if setting is not actual:
            raise ValueError(
                f"{CONFIG} sets {name} to {setting}, explicitly or by its class, and the "
                f"normalizer of tokenizer.json to {actual}: they contradict"
            )
    return pieces


def _strips(spec: WordPieceSpec) -> bool:
    return spec.lowercase if spec.strip_accents is None else spec.strip_accents


def require_bert_roles(config: TokenizerConfig) -> None:
    for role, name in DEFAULT_TOKENS[BERT].items():
        actual = config.roles.get(role, name)
        if actual != name:
            raise ValueError(f"{role} is {actual!r:.60}, but only {name!r} is supported")


def _appends_eos(post: Any, config: TokenizerConfig) -> bool:
    """Whether the post-processor only appends a translator's eos token, which we do anyway."""
    if config.model.get("model_type") != "marian":
        return False
    match post:
        case {
            "type": "TemplateProcessing",
            "single": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": str(name), "type_id": 0}},
            ],
            "special_tokens": dict(tokens),
        } if isinstance(tokens.get(name), dict):
            return bool(tokens[name].get("ids") == [config.model.get("eos_token_id")])
        case _:
            return False


def _added_tokens(document: dict[str, Any], config: TokenizerConfig) -> list[Any]:
    """The added tokens of tokenizer.json, and those that the other files make special."""
    added = list(require_list(document.get("added_tokens", []), "added_tokens"))
    by_content = {
        t["content"]: t for t in added if isinstance(t, dict) and isinstance(t.get("content"), str)
    }
    for content, token in config.added.items():
        if content not in by_content or any(
            by_content[content].get(key) != token[key]
            for key in ("id", "special")
            if key in token  # added_tokens.json has only the id
        ):
            raise ValueError(
                f"the added token {content!r:.60} differs between tokenizer.json and the files "
                f"beside it: they contradict"
            )
    vocabulary = document["model"].get("vocab")
    ids = {**(vocabulary if isinstance(vocabulary, dict) else {})}
    ids |= {content: token.get("id") for content, token in by_content.items()}
    missing = [name for name in config.special(ids, "tokenizer.json") if name not in by_content]
    return added + [{"id": ids[name], "content": name, "special": True} for name in missing]
