"""Reads a checkpoint's tokenizer files, and writes tokenizers for other tools."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearformer import limits
from clearformer.hub.safetensors_files import inside
from clearformer.hub.tokenizer_config import (
    BERT,
    CONFIG,
    DEFAULT_TOKENS,
    END,
    GPT2,
    QWEN2,
    TokenizerConfig,
    read_object,
    read_tokenizer_config,
)
from clearformer.hub.tokenizer_document import (
    BYTES,
    CLASS_PATTERNS,
    pad_vocabulary,
    read_tokenizer_document,
    require_bert_roles,
)
from clearformer.safe_json import read_json, read_limited
from clearformer.text import (
    ByteFallbackPairs,
    BytePairs,
    Bytes,
    SentencePieces,
    Tokenizer,
    WordPieces,
)
from clearformer.text.chat_template import ChatTemplate
from clearformer.text.hf_tokenizers import added_token, write_byte_pairs, write_template
from clearformer.text.sentencepiece import PAD
from clearformer.text.specs import SPECIALS, BytePairSpec, WordPieceSpec
from clearformer.text.subwords import LibraryTokenizer

SPM_FILES = ("source.spm", "target.spm")
PAIR_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a Hugging Face folder; None if there is none."""
    try:
        if (folder / SPM_FILES[0]).exists():
            return _sentence_pieces(folder)
        if (folder / "tokenizer.json").exists():
            return read_tokenizer_document(folder / "tokenizer.json", read_tokenizer_config(folder))
        for vocabulary, merges in PAIR_FILES:
            if (folder / vocabulary).exists() and (folder / merges).exists():
                return _byte_pairs(folder, vocabulary, merges)
        if (folder / "vocab.txt").exists():
            return _word_pieces(folder)
    except ValueError as problem:
        sentence = str(problem)
        has_path = sentence.startswith(str(folder))
        raise ValueError(sentence if has_path else f"{folder}: its tokenizer: {sentence}") from None
    return None


# --- files without a tokenizer.json --------------------------------------------------------


def _sentence_pieces(folder: Path) -> SentencePieces:
    """Marian's three files: source.spm, target.spm and vocab.json."""
    if read_object(folder / CONFIG).get("separate_vocabs") not in (None, False):
        raise ValueError("separate_vocabs is on, which is not supported: source and target share")
    for name in (*SPM_FILES, "vocab.json"):
        if not inside(folder, name).exists():
            raise ValueError(f"{name} is missing beside {SPM_FILES[0]}")
    source, target = (
        read_limited(folder / name, limits.MAX_SPM_BYTES, "MAX_SPM_BYTES") for name in SPM_FILES
    )
    return SentencePieces(source, target, _read_vocabulary(folder, "vocab.json"))


def _read_vocabulary(folder: Path, name: str) -> list[str]:
    """The tokens of a JSON object from tokens to ids, in the order of ids."""
    ids = read_json(folder / name)
    numbers = list(ids.values()) if isinstance(ids, dict) else []
    integers = all(type(number) is int for number in numbers)
    if not numbers or not integers or sorted(numbers) != list(range(len(numbers))):
        raise ValueError(f"{name} does not give each token a number from 0 on")
    return sorted(ids, key=ids.__getitem__)


def _byte_pairs(folder: Path, vocabulary: str, merges: str) -> BytePairs:
    """GPT-2's two files, by either of their names; Qwen2 has them too."""
    config = read_tokenizer_config(folder)
    config.require_class(f"a folder of {vocabulary} and {merges}", GPT2, QWEN2)
    tokenizer_class = config.tokenizer_class or GPT2
    config = replace(config, tokenizer_class=tokenizer_class)
    pattern, normal_form = CLASS_PATTERNS[tokenizer_class]
    config.refuse("add_prefix_space", "add_eos_token")
    tokens = _read_vocabulary(folder, vocabulary)
    specials = _specials(tokens, config, vocabulary)
    start = config.roles.get("bos_token", DEFAULT_TOKENS[tokenizer_class].get("bos_token"))
    lines = _lines(folder / merges)
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise ValueError(
            f"{merges} has the line {' '.join(wrong)!r:.60}, but a merge has two parts"
        )
    spec = BytePairSpec(
        vocabulary=tuple(tokens),
        merges=tuple((first, second) for first, second in pairs),
        pattern=pattern,
        specials=specials,
        prefix=(start,) if start is not None and config.flag("add_bos_token") else (),
        normal_form=normal_form,
    )
    return BytePairs(pad_vocabulary(spec, config))


def _word_pieces(folder: Path) -> WordPieces:
    """BERT's vocab.txt: one token on each line, in the order of ids."""
    config = read_tokenizer_config(folder)
    config.require_class("a vocab.txt", BERT)
    require_bert_roles(config)
    tokens = _lines(folder / "vocab.txt")
    while tokens and not tokens[-1]:
        tokens.pop()
    return WordPieces(
        WordPieceSpec(
            vocabulary=tuple(tokens),
            lowercase=config.flag_or("do_lower_case", True),
            strip_accents=config.flag("strip_accents"),
            split_chinese=config.flag_or("tokenize_chinese_chars", True),
            specials=tuple(dict.fromkeys((*SPECIALS, *_specials(tokens, config, "vocab.txt")))),
        )
    )


def _specials(tokens: list[str], config: TokenizerConfig, where: str) -> tuple[str, ...]:
    """The special tokens, by the configuration files."""
    ids = {token: i for i, token in enumerate(tokens)}
    specials = config.special(ids, where)
    for content, token in config.added.items():
        if ids.get(content) != token["id"] or content not in specials:
            raise ValueError(
                f"the added token {content!r:.60} is none of the special tokens in {where}, which "
                f"is not supported without a tokenizer.json"
            )
    return specials


def _lines(path: Path) -> list[str]:
    """The lines of a text file; only a line feed ends one."""
    content = read_limited(path, limits.MAX_JSON_BYTES, "MAX_JSON_BYTES")
    try:
        return content.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None


# --- writing -------------------------------------------------------------------------------


def write_tokenizer(
    tokenizer: Tokenizer,
    folder: Path,
    length: int,
    target_ids: tuple[int, int] | None = None,
    template: ChatTemplate | None = None,
) -> dict[str, int | None]:
    """Write tokenizer.json and its config; returns the special ids for the model's config.

    `target_ids` are the start and the end token of a translator; a chat `template` may name
    special tokens.
    """
    if isinstance(tokenizer, SentencePieces):
        _write_sentence_pieces(tokenizer, folder, length)
        return {}
    document, names = _document(tokenizer)
    if target_ids is not None:
        document, names = _with_target_ids(document, names, *target_ids)
    if template is not None:
        given = {"bos_token": template.bos_token, "eos_token": template.eos_token}
        names |= {role: name for role, name in given.items() if name in tokenizer.specials}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        **names,
    }
    _write_json(folder, {"tokenizer.json": document, "tokenizer_config.json": config})
    ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    return {
        f"{role}_id": ids.get(names[role]) if role in names else None
        for role in ("bos_token", "eos_token", "pad_token")
    }


def _document(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The library's JSON, and the special tokens by role."""
    match tokenizer:
        case Bytes():
            return _complete(write_byte_pairs(BYTES)), _inputs()
        case BytePairs(spec=spec):
            bos = {"bos_token": spec.prefix[0]} if spec.prefix else {}
            ends = {"bos_token": END, "eos_token": END} if END in spec.specials else {}
            return _complete(tokenizer.document), _inputs() | bos | ends
        case ByteFallbackPairs(spec=spec):
            bos = {"bos_token": spec.prefix[0]} if spec.prefix else {}
            eos = {"eos_token": "</s>"} if "</s>" in spec.specials else {}
            return _complete(tokenizer.document), _inputs() | {"unk_token": "<unk>"} | bos | eos
        case WordPieces():
            post = write_template(tokenizer.document["model"]["vocab"], ["[CLS]"], ["[SEP]"])
            roles = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
            inputs = _inputs("token_type_ids")
            return _complete({**tokenizer.document, "post_processor": post}), roles | inputs
        case _:
            assert not isinstance(tokenizer, LibraryTokenizer)
            raise ValueError(
                f"a {tokenizer.kind} tokenizer cannot be opened by other tools, only bytes, bpe "
                f"and wordpiece can: use --to safetensors, which keeps any tokenizer"
            )


def _with_target_ids(
    document: dict[str, Any], names: dict[str, Any], start_id: int, end_id: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for a translator: name its start and end tokens, and append the end token."""
    tokens = {**document["model"]["vocab"]}
    names_by_id = {number: name for name, number in tokens.items()}
    added = [*document["added_tokens"]]
    for number, name in ((end_id, "</s>"), (start_id, PAD)):
        if number not in names_by_id:
            while name in tokens:
                name = f"<{name}>"
            names_by_id[number], tokens[name] = name, number
        if all(each["id"] != number for each in added):
            added.append(added_token(names_by_id[number], number, special=True))
    end = names_by_id[end_id]
    post = write_template(tokens, (), [end], second_segment=0)
    added.sort(key=lambda each: each["id"])
    document = {**document, "added_tokens": added, "post_processor": post}
    names = {k: v for k, v in names.items() if k != "bos_token"}
    return document, {**names, "eos_token": end, "pad_token": names_by_id[start_id]}


def _write_sentence_pieces(tokenizer: SentencePieces, folder: Path, length: int) -> None:
    for name, content in zip(SPM_FILES, tokenizer.files, strict=True):
        (folder / name).write_bytes(content)
    ids = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    config = {"tokenizer_class": "MarianTokenizer", "model_max_length": length}
    _write_json(folder, {"vocab.json": ids, "tokenizer_config.json": config})


def _inputs(*more: str) -> dict[str, Any]:
    """The inputs that the tokenizer makes; a generator has no segments."""
    return {"model_input_names": ["input_ids", *more, "attention_mask"]}


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    """With every stage present, as older readers require."""
    stages = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {**dict.fromkeys(stages), **document}


def _write_json(folder: Path, documents: dict[str, Any]) -> None:
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document), encoding="ascii")
