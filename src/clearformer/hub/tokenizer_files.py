"""A checkpoint's tokenizer, from the files it may come in, and as a tokenizer.json to others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearformer import limits
from clearformer.config import Marks
from clearformer.hub.safetensors_files import inside
from clearformer.hub.tokenizer_config import (
    BERT,
    CONFIG,
    END,
    GPT2,
    QWEN2,
    USUAL,
    Wishes,
    read_object,
    read_wishes,
)
from clearformer.hub.tokenizer_document import (
    BYTES,
    SPLITS,
    filled,
    read_tokenizer_document,
    require_berts_roles,
)
from clearformer.safe_json import read_json
from clearformer.text import (
    ByteFallbackPairs,
    BytePairs,
    Bytes,
    SentencePieces,
    Tokenizer,
    WordPieces,
)
from clearformer.text.hf_tokenizers import write_byte_pairs, write_template
from clearformer.text.sentencepiece import MAX_SPM_BYTES, PAD
from clearformer.text.specs import SPECIALS, BytePairSpec, WordPieceSpec
from clearformer.text.subwords import LibraryTokenizer

SPM_FILES = ("source.spm", "target.spm")
PAIR_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a Hugging Face folder; None if it has no file of one."""
    try:
        if (folder / SPM_FILES[0]).exists():
            return _sentence_pieces(folder)
        if (folder / "tokenizer.json").exists():
            return read_tokenizer_document(folder / "tokenizer.json", read_wishes(folder))
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


# --- files of before -----------------------------------------------------------------------


def _sentence_pieces(folder: Path) -> SentencePieces:
    """Marian's three files."""
    config = read_object(folder / CONFIG)
    if config.get("separate_vocabs") not in (None, False):
        raise ValueError("separate_vocabs is on, which is not supported: source and target share")
    files = []
    for name in SPM_FILES:
        path = inside(folder, name)
        if not path.exists():
            raise ValueError(f"{name} is missing beside {SPM_FILES[0]}")
        if not path.is_file():  # a pipe would keep us waiting for ever
            raise ValueError(f"{path} is no file")
        if path.stat().st_size > MAX_SPM_BYTES:
            raise ValueError(f"{name} has more than {MAX_SPM_BYTES:,} bytes")
        files.append(path.read_bytes())
    if not (folder / "vocab.json").exists():
        raise ValueError(f"vocab.json is missing beside {SPM_FILES[0]}")
    return SentencePieces(files[0], files[1], _in_order(folder, "vocab.json"))


def _in_order(folder: Path, name: str) -> list[str]:
    """The tokens of a file that gives each its number."""
    ids = read_json(folder / name)
    numbers = list(ids.values()) if isinstance(ids, dict) else []
    whole = all(type(number) is int for number in numbers)
    if not numbers or not whole or sorted(numbers) != list(range(len(numbers))):
        raise ValueError(f"{name} does not give each token a number from 0 on")
    return sorted(ids, key=ids.__getitem__)


def _byte_pairs(folder: Path, vocabulary: str, merges: str) -> BytePairs:
    """GPT-2's own two files, by either of their names; Qwen2 has them too."""
    wishes = read_wishes(folder)
    wishes.opened_by(f"a folder of {vocabulary} and {merges}", GPT2, QWEN2)
    opener = wishes.opener or GPT2
    wishes = replace(wishes, opener=opener)
    pattern, normal_form = SPLITS[opener]
    wishes.refuse("add_prefix_space", "add_eos_token")
    tokens = _in_order(folder, vocabulary)
    specials = _specials(tokens, wishes, vocabulary)
    start = wishes.roles.get("bos_token", USUAL[opener].get("bos_token"))
    lines = _lines(folder / merges)
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise ValueError(f"{merges} has the line {' '.join(wrong)!r:.60}, but a merge is of two")
    spec = BytePairSpec(
        vocabulary=tuple(tokens),
        merges=tuple((first, second) for first, second in pairs),
        pattern=pattern,
        specials=specials,
        prefix=(start,) if start is not None and wishes.flag("add_bos_token") else (),
        normal_form=normal_form,
    )
    return BytePairs(filled(spec, wishes))


def _word_pieces(folder: Path) -> WordPieces:
    """BERT's own file: a token on each line, its number the line's."""
    wishes = read_wishes(folder)
    wishes.opened_by("a vocab.txt", BERT)
    require_berts_roles(wishes)
    tokens = _lines(folder / "vocab.txt")
    while tokens and not tokens[-1]:
        tokens.pop()
    return WordPieces(
        WordPieceSpec(
            vocabulary=tuple(tokens),
            lowercase=wishes.asked("do_lower_case", True),
            strip_accents=wishes.flag("strip_accents"),
            split_chinese=wishes.asked("tokenize_chinese_chars", True),
            specials=tuple(dict.fromkeys((*SPECIALS, *_specials(tokens, wishes, "vocab.txt")))),
        )
    )


def _specials(tokens: list[str], wishes: Wishes, where: str) -> tuple[str, ...]:
    """The special tokens of a vocabulary that does not say which they are."""
    ids = {token: i for i, token in enumerate(tokens)}
    found = wishes.special(ids, where)
    for content, token in wishes.added.items():
        if ids.get(content) != token["id"] or content not in found:
            raise ValueError(
                f"the added token {content!r:.60} is none of the special tokens in {where}, which "
                f"is not supported without a tokenizer.json"
            )
    return found


def _lines(path: Path) -> list[str]:
    """Lines as these files mean them: only a line feed ends one."""
    try:
        if path.stat().st_size > limits.MAX_JSON_BYTES or not path.is_file():
            raise ValueError(
                f"{path} is no file, or has more than {limits.MAX_JSON_BYTES:,} bytes "
                f"(MAX_JSON_BYTES)"
            )
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8") from None


# --- to others -----------------------------------------------------------------------------


def write_tokenizer(
    tokenizer: Tokenizer, folder: Path, length: int, marks: Marks | None = None
) -> dict[str, int | None]:
    """Write tokenizer.json and its config; returns the ids that a model's config names."""
    if isinstance(tokenizer, SentencePieces):
        _write_sentence_pieces(tokenizer, folder, length)
        return {}
    document, names = _document(tokenizer)
    if marks is not None:
        document, names = _with_marks(document, names, marks)
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
        case BytePairs(spec=spec):
            roles = _inputs()
            if spec.prefix:
                roles["bos_token"] = spec.prefix[0]
            if END in spec.specials:
                roles |= {"bos_token": END, "eos_token": END}
            return _complete(tokenizer.document), roles
        case ByteFallbackPairs(spec=spec):
            roles = _inputs() | {"unk_token": "<unk>"}
            if spec.prefix:
                roles["bos_token"] = spec.prefix[0]
            if "</s>" in spec.specials:
                roles["eos_token"] = "</s>"
            return _complete(tokenizer.document), roles
        case WordPieces(spec=spec):
            post = write_template(tokenizer.document["model"]["vocab"], ("[CLS]",), ("[SEP]",))
            roles = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
            inputs = _inputs("token_type_ids")
            return _complete({**tokenizer.document, "post_processor": post}), roles | inputs
        case _:
            assert not isinstance(tokenizer, LibraryTokenizer)
            raise ValueError(
                f"a {tokenizer.kind} tokenizer has no form that other tools open: those of bytes, "
                f"bpe and wordpiece have; --to safetensors keeps any"
            )


def _with_marks(
    document: dict[str, Any], names: dict[str, Any], marks: Marks
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for a translator: its marks have names, and the end mark closes a text."""
    tokens = {**document["model"]["vocab"]}
    called = {number: name for name, number in tokens.items()}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [*document["added_tokens"]]
    for number, name in ((marks.end, "</s>"), (marks.start, PAD)):
        if number not in called:
            while name in tokens:
                name = f"<{name}>"
            called[number], tokens[name] = name, number
        if all(each["id"] != number for each in added):
            added.append({"id": number, "content": called[number], **plain, "special": True})
    end = called[marks.end]
    post = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, _special(end)],
        "pair": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 0}},
            _special(end),
        ],
        "special_tokens": {end: {"id": end, "ids": [marks.end], "tokens": [end]}},
    }
    added.sort(key=lambda each: each["id"])
    document = {**document, "added_tokens": added, "post_processor": post}
    names = {k: v for k, v in names.items() if k != "bos_token"}
    return document, {**names, "eos_token": end, "pad_token": called[marks.start]}


def _special(name: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": 0}}


def _write_sentence_pieces(tokenizer: SentencePieces, folder: Path, length: int) -> None:
    for name, content in zip(SPM_FILES, tokenizer.files, strict=True):
        (folder / name).write_bytes(content)
    ids = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    config = {"tokenizer_class": "MarianTokenizer", "model_max_length": length}
    for name, document in (("vocab.json", ids), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(document), encoding="ascii")


def _inputs(*more: str) -> dict[str, Any]:
    """What the tokenizer gives: a generator reads one text, so its segments need no numbers."""
    return {"model_input_names": ["input_ids", *more, "attention_mask"]}


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    """With every stage named: readers of some years want them all."""
    stages = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {**dict.fromkeys(stages), **document}
