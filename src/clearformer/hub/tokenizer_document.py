"""A checkpoint's tokenizer.json, held against what the files beside it say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from clearformer.hub.tokenizer_config import (
    BERT,
    CONFIG,
    GPT2,
    LLAMA,
    QWEN2,
    USUAL,
    WHOLE,
    Wishes,
)
from clearformer.safe_json import read_json
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Tokenizer, WordPieces
from clearformer.text.hf_tokenizers import require_list
from clearformer.text.specs import BytePairSpec, WordPieceSpec, byte_characters

ROUND, MOST_SPARE = 64, 512  # published ones are multiples of 128 and have up to 421 rows to spare
# How a class splits a text, and the normal form that it brings it to.
SPLITS: dict[str, tuple[str, Literal["NFC"] | None]] = {
    GPT2: ("gpt2", None),
    QWEN2: ("qwen2", "NFC"),
}
BYTES = BytePairSpec(byte_characters(), ())  # the bytes themselves, as a BPE without merges


def read_tokenizer_document(path: Path, wishes: Wishes) -> Tokenizer:
    """The tokenizer in tokenizer.json, as the files beside it ask for it."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ValueError("tokenizer.json is not one of the tokenizers library")
    if "type" not in document["model"]:  # as it was written in 2020
        kind = "BPE" if "merges" in document["model"] else "WordPiece"
        document["model"] = {**document["model"], "type": kind}
    # How long a text may be and how rows are filled up is settled elsewhere.
    document = {k: v for k, v in document.items() if k not in ("truncation", "padding")}
    if _closes(document.get("post_processor"), wishes):
        document["post_processor"] = None
    document["added_tokens"] = _added_tokens(document, wishes)
    match document["model"].get("type"):
        case "BPE" if document["model"].get("byte_fallback") is True:
            wishes.opened_by("a BPE with byte_fallback", WHOLE, LLAMA)
            wishes.agree("add_prefix_space", True)
            if wishes.opener == LLAMA:
                # This class does not normalize, so it looks for a token in the text as it is.
                tokens = document["added_tokens"]
                document["added_tokens"] = [
                    {**token, "normalized": False} if isinstance(token, dict) else token
                    for token in tokens
                ]
            return ByteFallbackPairs.from_library(document)
        case "BPE":
            return _byte_level(document, wishes)
        case "WordPiece":
            return _word_level(document, wishes)
        case kind:
            raise ValueError(f"it is a {kind!r:.40}, but only BPE and WordPiece are supported")


def _byte_level(document: dict[str, Any], wishes: Wishes) -> Tokenizer:
    wishes.opened_by("a byte-level BPE", WHOLE, GPT2, QWEN2, LLAMA)
    wishes.agree("add_prefix_space", False)
    # A byte-level tokenizer knows every byte, so an unknown token never comes up.
    model = {k: v for k, v in document["model"].items() if k != "unk_token"}
    pairs = BytePairs.from_library({**document, "model": model})
    spec = pairs.spec
    found = spec.pattern, spec.normal_form, spec.ignore_merges
    # These two classes take the vocabulary and the merges alone, and split in their own way.
    for opener, (pattern, form) in SPLITS.items():
        if wishes.opener == opener and found != (pattern, form, False):
            raise ValueError(
                f"tokenizer_class is {opener!r}, which splits by the pattern {pattern} with the "
                f"normal form {form} and always merges, but tokenizer.json does not: name "
                f"{WHOLE}Fast if the file is right"
            )
    return Bytes() if spec == BYTES else BytePairs(filled(spec, wishes))


def filled(spec: BytePairSpec, wishes: Wishes) -> BytePairSpec:
    """With a special token for every row behind the last: Qwen's embeddings are rounded up."""
    size, rows = len(spec.vocabulary), wishes.model.get("vocab_size")
    if wishes.model.get("model_type") not in ("qwen2", "qwen3") or not isinstance(rows, int):
        return spec
    if rows % ROUND or not size < rows <= size + MOST_SPARE:
        return spec
    spare = tuple(f"<|no token {number}|>" for number in range(size, rows))
    return replace(spec, vocabulary=spec.vocabulary + spare, specials=spec.specials + spare)


def _word_level(document: dict[str, Any], wishes: Wishes) -> Tokenizer:
    wishes.opened_by("a WordPiece", WHOLE, BERT)
    if document.get("post_processor") is None and wishes.opener != BERT:
        raise ValueError(
            "post_processor is null, so no [CLS] and [SEP] would stand around a text, but a "
            "WordPiece tokenizer without them is not supported"
        )
    require_berts_roles(wishes)
    pieces = WordPieces.from_library(document)
    spec = pieces.spec
    own = wishes.opener == BERT  # which does not look at the normalizer of tokenizer.json
    lowercase = wishes.asked("do_lower_case", True if own else spec.lowercase)
    chinese = wishes.asked("tokenize_chinese_chars", True if own else spec.split_chinese)
    accents = wishes.flag("strip_accents")
    if accents is None:
        accents = lowercase if own else _strips(spec)
    for name, asked, done in (
        ("do_lower_case", lowercase, spec.lowercase),
        ("tokenize_chinese_chars", chinese, spec.split_chinese),
        ("strip_accents", accents, _strips(spec)),
    ):
        if asked is not done:
            raise ValueError(
                f"{CONFIG} sets {name} to {asked}, by its word or as the class does, and the "
                f"normalizer of tokenizer.json to {done}: they contradict"
            )
    return pieces


def _strips(spec: WordPieceSpec) -> bool:
    return spec.lowercase if spec.strip_accents is None else spec.strip_accents


def require_berts_roles(wishes: Wishes) -> None:
    for role, name in USUAL[BERT].items():
        found = wishes.roles.get(role, name)
        if found != name:
            raise ValueError(f"{role} is {found!r:.60}, but only {name!r} is supported")


def _closes(post: Any, wishes: Wishes) -> bool:
    """Whether all that is done is to put a translator's end behind a text: it does so by itself."""
    if wishes.model.get("model_type") != "marian":
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
            return bool(tokens[name].get("ids") == [wishes.model.get("eos_token_id")])
        case _:
            return False


def _added_tokens(document: dict[str, Any], wishes: Wishes) -> list[Any]:
    """Those of tokenizer.json, and what the files beside it make special."""
    added = list(require_list(document.get("added_tokens", []), "added_tokens"))
    known = {
        t["content"]: t for t in added if isinstance(t, dict) and isinstance(t.get("content"), str)
    }
    for content, token in wishes.added.items():
        if content not in known or any(
            known[content].get(key) != token[key]
            for key in ("id", "special")
            if key in token  # the older file says only the id
        ):
            raise ValueError(
                f"the added token {content!r:.60} is another in tokenizer.json than in the files "
                f"beside it: they contradict"
            )
    vocabulary = document["model"].get("vocab")
    ids = {**(vocabulary if isinstance(vocabulary, dict) else {})}
    ids |= {content: token.get("id") for content, token in known.items()}
    more = [name for name in wishes.special(ids, "tokenizer.json") if name not in known]
    return added + [{"id": ids[name], "content": name, "special": True} for name in more]
