"""Tokenizers in a GGUF file: vocabulary, merges or scores, and special tokens, both ways.

llama.cpp has its own implementation of each kind, which `tokenizer.ggml.model` and
`tokenizer.ggml.pre` name. What it would split differently is refused, or noted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from clearformer.hub.tokenizer_document import BYTES
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Tokenizer
from clearformer.text.byte_fallback import BYTES as BYTE_TOKENS
from clearformer.text.byte_fallback import UNKNOWN, FallbackSpec
from clearformer.text.chat_template import ChatTemplate
from clearformer.text.specs import BytePairSpec, byte_characters

KEY = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
PRE = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2"}  # by our patterns
PATTERNS = {name: pattern for pattern, name in PRE.items()} | {
    "llama3": "llama3",
    "llama-v3": "llama3",
}
IGNORES_MERGES = "llama3"  # the pattern for which llama.cpp looks whole words up
ADDS_BOS = {"llama3"}  # and for which it adds the bos token unless the file says otherwise
NORMAL, UNKNOWN_TYPE, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# A byte that no UTF-8 text has. llama.cpp takes token 11 as eos if a file names none, which is a
# comma in our own vocabularies; and it requires merges, which a byte tokenizer does not have.
NEVER = 0xFF
NEVER_TOKENS = (byte_characters()[NEVER], BYTE_TOKENS[NEVER])
NEVER_MERGED = " ".join([NEVER_TOKENS[0]] * 2)
MAX_TOKEN_LETTERS = 1024
MAX_VOCABULARY_LETTERS = 8_000_000  # of a vocabulary whose merges are derived from scores

Metadata = dict[str, Any]


# --- writing ---------------------------------------------------------------------------------


def write_tokenizer(
    tokenizer: Tokenizer, end_ids: Sequence[int], template: ChatTemplate | None
) -> tuple[Metadata, tuple[str, ...]]:
    """The keys for a file, and notes; ValueError for a kind that llama.cpp does not have."""
    keys, notes = _write_kind(tokenizer)
    tokens = keys["tokens"]
    notes = list(notes)
    ends = list(end_ids)
    if not ends:
        ends = [next(i for i, token in enumerate(tokens) if token in NEVER_TOKENS)]
        notes.append(
            "it has no end token, but llama.cpp requires one: the byte 0xFF, which no text has, is "
            "named as one"
        )
    if len(ends) > len(END_KEYS):
        notes.append(f"{len(ends)} tokens end a text, and the file names {len(END_KEYS)} of them")
    keys |= dict(zip(END_KEYS, ends, strict=False))
    keys["add_bos_token"] = bool(tokenizer.prefix_ids)
    keys["add_eos_token"] = False
    keys["bos_token_id"] = (*tokenizer.prefix_ids, *ends)[0]
    if len(tokenizer.prefix_ids) > 1:
        raise ValueError(
            f"its tokenizer puts {len(tokenizer.prefix_ids)} tokens before a text, but llama.cpp "
            f"one at most: use --to huggingface"
        )
    found = {KEY + name: value for name, value in keys.items()}
    if template is not None:
        found[TEMPLATE] = template.source
    return found, tuple(notes)


def _write_kind(tokenizer: Tokenizer) -> tuple[Metadata, list[str]]:
    match tokenizer:
        case Bytes():
            return _write_byte_pairs(BYTES)
        case BytePairs(spec=spec):
            return _write_byte_pairs(spec)
        case ByteFallbackPairs(spec=spec):
            return _write_fallback(spec)
        case _:
            raise ValueError(
                f"llama.cpp has no {tokenizer.kind} tokenizer, only bytes, bpe and fallback-bpe: "
                f"use --to safetensors, which keeps any tokenizer"
            )


def _write_byte_pairs(spec: BytePairSpec) -> tuple[Metadata, list[str]]:
    if spec.ignore_merges is not (spec.pattern == IGNORES_MERGES):
        does = "does not look" if spec.ignore_merges else "looks"
        raise ValueError(
            f"llama.cpp {does} whole words up in a vocabulary with the pattern {spec.pattern}, "
            f"unlike this tokenizer: use --to huggingface"
        )
    kinds = dict.fromkeys(spec.specials, CONTROL) | dict.fromkeys(spec.added, USER_DEFINED)
    notes = []
    if spec.normal_form is not None:
        notes.append(
            f"llama.cpp does not normalize text to {spec.normal_form}: it splits letters with "
            f"separate accents differently"
        )
    keys: Metadata = {
        "model": "gpt2",
        "pre": PRE[spec.pattern],
        "tokens": list(spec.vocabulary),
        "token_type": [kinds.get(token, NORMAL) for token in spec.vocabulary],
        "merges": [f"{first} {second}" for first, second in spec.merges] or [NEVER_MERGED],
    }
    return keys, notes


def _write_fallback(spec: FallbackSpec) -> tuple[Metadata, list[str]]:
    kinds = dict.fromkeys(spec.specials, CONTROL) | dict.fromkeys(BYTE_TOKENS, BYTE)
    kinds[UNKNOWN] = UNKNOWN_TYPE
    # llama.cpp merges the pair whose token has the highest score.
    ranks: dict[str, int] = {}
    for rank, (first, second) in enumerate(spec.merges):
        ranks.setdefault(first + second, rank)
    notes = []
    plain = [token for token in spec.vocabulary if token not in kinds]
    if set(_pairs(plain)) != set(spec.merges):
        notes.append("llama.cpp merges any two tokens that make a third, which this file's do not")
    if spec.leading_space != "normalizer":
        notes.append("llama.cpp puts a space before a text that begins with one, too")
    last = len(spec.merges)
    keys: Metadata = {
        "model": "llama",
        "pre": "default",
        "tokens": list(spec.vocabulary),
        "token_type": [kinds.get(token, NORMAL) for token in spec.vocabulary],
        "scores": [-float(ranks.get(token, last)) for token in spec.vocabulary],
        "unknown_token_id": spec.vocabulary.index(UNKNOWN),
        "add_space_prefix": True,
    }
    return keys, notes


# --- reading ---------------------------------------------------------------------------------


def read_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a file; ValueError if it is damaged or of another kind."""
    kind = metadata.get(f"{KEY}model")
    tokens = _list(metadata, "tokens", str)
    if any(len(token) > MAX_TOKEN_LETTERS for token in tokens):
        raise ValueError(f"a token has more than {MAX_TOKEN_LETTERS:,} letters")
    kinds = _list(metadata, "token_type", int) if f"{KEY}token_type" in metadata else []
    if kinds and len(kinds) != len(tokens):
        raise ValueError(f"it has {len(tokens):,} tokens, but {len(kinds):,} types of tokens")
    kinds = kinds or [NORMAL] * len(tokens)
    if metadata.get(f"{KEY}add_eos_token") is True:
        raise ValueError(f"{KEY}add_eos_token is true, which is not supported")
    if kind == "gpt2":
        return _read_byte_pairs(metadata, tokens, kinds)
    if kind == "llama":
        return _read_fallback(metadata, tokens, kinds)
    raise ValueError(
        f"its tokenizer is {kind!r:.40}, but clearformer reads gpt2 (byte pairs) and llama "
        f"(SentencePiece's BPE): give another one with --tokenizer"
    )


def _read_byte_pairs(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int]) -> Tokenizer:
    pre = metadata.get(f"{KEY}pre")
    pattern = PATTERNS.get(pre) if isinstance(pre, str) else None
    if pattern is None:
        raise ValueError(
            f"its tokenizer splits text as {pre!r:.40}, but clearformer knows "
            f"{', '.join(PATTERNS)}: give another one with --tokenizer"
        )
    merges = [merge.split(" ") for merge in _list(metadata, "merges", str) if merge != NEVER_MERGED]
    wrong = next((merge for merge in merges if len(merge) != 2), None)
    if wrong is not None:
        raise ValueError(f"it has the merge {' '.join(wrong)!r:.60}, but a merge has two parts")
    by_kind = dict(zip(tokens, kinds, strict=True))
    spec = BytePairSpec(
        vocabulary=tuple(tokens),
        merges=tuple((first, second) for first, second in merges),
        pattern=pattern,
        ignore_merges=pattern == IGNORES_MERGES,
        specials=tuple(t for t in tokens if by_kind[t] in (UNKNOWN_TYPE, CONTROL, UNUSED)),
        added=tuple(t for t in tokens if by_kind[t] == USER_DEFINED),
        prefix=_prefix(metadata, tokens, pattern in ADDS_BOS),
    )
    return Bytes() if spec == BYTES else BytePairs(spec)


def _read_fallback(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int]) -> Tokenizer:
    scores = _list(metadata, "scores", float)
    if len(scores) != len(tokens) or not all(map(math.isfinite, scores)):
        raise ValueError(f"it has {len(tokens):,} tokens, but not as many finite scores")
    if metadata.get(f"{KEY}add_space_prefix", True) is not True:
        raise ValueError(f"{KEY}add_space_prefix is not true, which is not supported")
    if sum(map(len, tokens)) > MAX_VOCABULARY_LETTERS:
        raise ValueError(
            f"its tokens have {sum(map(len, tokens)):,} letters, but at most "
            f"{MAX_VOCABULARY_LETTERS:,} are read"
        )
    plain = [i for i, kind in enumerate(kinds) if kind == NORMAL]
    plain.sort(key=lambda i: -scores[i])
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind not in (NORMAL, BYTE)]
    prefix = _prefix(metadata, tokens, True)
    return ByteFallbackPairs(
        FallbackSpec(
            vocabulary=tuple(tokens),
            merges=tuple(_pairs([tokens[i] for i in plain])),
            specials=tuple(dict.fromkeys((*special, *prefix))),
            prefix=prefix,
        )
    )


def _pairs(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Every pair of tokens that makes a third, in the order of the third."""
    known = set(tokens)
    splits = ((token[:at], token[at:]) for token in tokens for at in range(1, len(token)))
    return [(first, second) for first, second in splits if first in known and second in known]


def _prefix(metadata: Mapping[str, Any], tokens: list[str], default: bool) -> tuple[str, ...]:
    """The bos token, if a text begins with it."""
    if metadata.get(f"{KEY}add_bos_token", default) is not True:
        return ()
    return (tokens[_id(metadata, "bos_token_id", len(tokens))],)


def read_end_ids(metadata: Mapping[str, Any], size: int) -> tuple[int, ...]:
    """The tokens that end a text, among the first `size`; without the byte that never occurs."""
    names = [name for name in END_KEYS if KEY + name in metadata]
    ids = dict.fromkeys(_id(metadata, name, size) for name in names)
    tokens = metadata.get(f"{KEY}tokens")
    listed = tokens if isinstance(tokens, list) and len(tokens) == size else []
    return tuple(each for each in ids if not listed or listed[each] not in NEVER_TOKENS)


def read_template(
    metadata: Mapping[str, Any],
) -> tuple[ChatTemplate | None, tuple[str, ...]]:
    """The chat template of a file, or None, and notes; one that cannot be used is a note."""
    source = metadata.get(TEMPLATE)
    if source is None:
        return None, ()
    try:
        if not isinstance(source, str):
            raise ValueError(f"it is {source!r:.60}, but it must be a text")
        tokens = _list(metadata, "tokens", str)
        ids = {
            role: _id(metadata, f"{role}_id", len(tokens))
            for role in ("bos_token", "eos_token")
            if f"{KEY}{role}_id" in metadata
        }
        named = {role: tokens[i] for role, i in ids.items() if tokens[i] not in NEVER_TOKENS}
        template = ChatTemplate(source=source, **named)
        template.check()
    except ValueError as problem:
        return None, (f"left out, its chat template: {problem}",)
    return template, ()


def _id(metadata: Mapping[str, Any], name: str, size: int) -> int:
    value = metadata.get(KEY + name)
    if type(value) is not int or not 0 <= value < size:
        raise ValueError(f"{KEY}{name} is {value!r:.40}, but the ids are 0 to {size - 1:,}")
    return value


def _list(metadata: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    value = metadata.get(KEY + name)
    if not isinstance(value, list) or not all(type(each) is kind for each in value):
        found = "missing" if value is None else "something else"
        raise ValueError(f"{KEY}{name} must be a list of {kind.__name__}, but it is {found}")
    return value
