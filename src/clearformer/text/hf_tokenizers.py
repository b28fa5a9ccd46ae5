"""The JSON of the `tokenizers` library, read strictly and written exactly.

A tokenizer file may come from anywhere, and the library trusts it: a bad regular expression
hangs it, a bad merge ends in a Rust panic, a dropout makes encoding random. So a file is parsed
here into a specification, anything else in it is refused by name, and the library only sees JSON
that was written from the specification.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from clearformer.text.specs import LONGEST_WORD, PATTERNS, BytePairSpec, Merges, WordPieceSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

_POST = "post_processor"
_NFC = {"type": "NFC"}
_OFF: tuple[Any, ...] = (None, False, "", [])  # a setting with one of these changes nothing
_PARTS = {"version", "model", "added_tokens", "pre_tokenizer", "decoder", _POST}


class Spec(Protocol):
    """What all specifications of the library's tokenizers have."""

    @property
    def vocabulary(self) -> tuple[str, ...]: ...

    @property
    def specials(self) -> tuple[str, ...]: ...


def open_library(document: dict[str, Any]) -> "Library":
    """The library's tokenizer; imported only now, because the import is slow."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(document))


# --- byte pairs and WordPiece --------------------------------------------------------------


def read_byte_pairs(data: Any) -> BytePairSpec:
    """The specification in a library's JSON; ValueError unless it is a known byte-level BPE."""
    composed = isinstance(data, dict) and data.get("normalizer") == _NFC
    require_keys(data, "", _PARTS | {"normalizer"} if composed else _PARTS)
    model = require_keys(data.get("model"), "model", {"type", "vocab", "merges", "ignore_merges"})
    expect(model, "model", type="BPE")
    vocabulary, specials, added = read_vocabulary(data)
    return BytePairSpec(
        vocabulary=tuple(vocabulary),
        merges=read_merges(model),
        pattern=_read_pattern(data.get("pre_tokenizer")),
        ignore_merges=model.get("ignore_merges") is True,
        specials=specials,
        prefix=read_prefix(data.get(_POST), vocabulary),
        added=added,
        normal_form="NFC" if composed else None,
    )


def write_byte_pairs(spec: BytePairSpec) -> dict[str, Any]:
    """JSON for the library; the inverse of `read_byte_pairs`."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    split = {
        "type": "Split",
        "pattern": {"Regex": PATTERNS[spec.pattern]},
        "behavior": "Isolated",
        "invert": False,
    }
    return write_document(
        spec,
        model={
            "type": "BPE",
            "ignore_merges": spec.ignore_merges,
            "merges": [list(merge) for merge in spec.merges],
        },
        added=spec.added,
        prefix=spec.prefix,
        normalizer=_NFC if spec.normal_form else None,
        # GPT-2's pattern is built in, which is faster.
        pre_tokenizer={**level, "use_regex": True}
        if spec.pattern == "gpt2"
        else {"type": "Sequence", "pretokenizers": [split, {**level, "use_regex": False}]},
        decoder={**level, "use_regex": True},
    )


def read_word_pieces(data: Any) -> WordPieceSpec:
    """The specification in a library's JSON; ValueError unless it is a WordPiece like BERT's."""
    require_keys(data, "", _PARTS | {"normalizer"})
    names = {"type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"}
    model = require_keys(data.get("model"), "model", names)
    expect(
        model,
        "model",
        type="WordPiece",
        unk_token="[UNK]",
        continuing_subword_prefix="##",
        max_input_chars_per_word=LONGEST_WORD,
    )
    expect(data.get("pre_tokenizer"), "pre_tokenizer", type="BertPreTokenizer")
    require_keys(data["pre_tokenizer"], "pre_tokenizer", {"type"})
    expect(data.get("normalizer"), "normalizer", type="BertNormalizer")
    names = {"type", "clean_text", "lowercase", "strip_accents", "handle_chinese_chars"}
    normalizer = require_keys(data["normalizer"], "normalizer", names)
    expect(
        normalizer,
        "normalizer",
        clean_text=True,
        lowercase=(True, False),
        handle_chinese_chars=(True, False),
        strip_accents=(None, True, False),
    )
    vocabulary, specials = read_special_vocabulary(data)
    _require_bert_template(data.get(_POST), vocabulary)
    return WordPieceSpec(
        vocabulary=tuple(vocabulary),
        lowercase=normalizer["lowercase"],
        strip_accents=normalizer.get("strip_accents"),
        split_chinese=normalizer["handle_chinese_chars"],
        specials=specials,
    )


def write_word_pieces(spec: WordPieceSpec) -> dict[str, Any]:
    """JSON for the library; the inverse of `read_word_pieces`."""
    return write_document(
        spec,
        model={
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
        },
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": spec.split_chinese,
            "strip_accents": spec.strip_accents,
            "lowercase": spec.lowercase,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


# --- writing -------------------------------------------------------------------------------


def added_token(token: str, number: int, special: bool) -> dict[str, Any]:
    """An entry of `added_tokens`."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": token, **plain, "special": special}


def write_document(
    spec: Spec,
    model: dict[str, Any],
    added: Sequence[str] = (),
    prefix: Sequence[str] = (),
    **stages: Any,
) -> dict[str, Any]:
    ids = {token: i for i, token in enumerate(spec.vocabulary)}
    special = set(spec.specials)
    if prefix:  # no entry otherwise: the identity of the tokenizer depends on the document
        stages[_POST] = write_template(ids, prefix, ())
    return {
        "version": "1.0",
        "added_tokens": [
            added_token(token, ids[token], token in special)
            for token in sorted((*spec.specials, *added), key=ids.__getitem__)
        ],
        "model": {**model, "vocab": ids},
        **stages,
    }


def write_template(
    ids: Mapping[str, int], prefix: Sequence[str], suffix: Sequence[str], second_segment: int = 1
) -> dict[str, Any]:
    """A post-processor that puts special tokens around a text, and around a pair as BERT does."""

    def specials(names: Sequence[str], segment: int) -> list[Any]:
        return [{"SpecialToken": {"id": name, "type_id": segment}} for name in names]

    def text(name: str, segment: int) -> list[Any]:
        return [{"Sequence": {"id": name, "type_id": segment}}]

    first = [*specials(prefix, 0), *text("A", 0)]
    between = specials(suffix, 0) if second_segment else []
    second = [*text("B", second_segment), *specials(suffix, second_segment)]
    return {
        "type": "TemplateProcessing",
        "single": [*first, *specials(suffix, 0)],
        "pair": [*first, *between, *second],
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]}
            for name in dict.fromkeys((*prefix, *suffix))
        },
    }


# --- reading, one value at a time ----------------------------------------------------------


def require_keys(data: Any, path: str, known: set[str]) -> dict[str, Any]:
    """An object without unknown settings that are on: ignoring one would change ids."""
    if not isinstance(data, dict):
        raise ValueError(f"{path or 'the tokenizer'} is {data!r:.60}, but it must be an object")
    for key, value in data.items():
        if key not in known and value not in _OFF:
            name = f"{path}.{key}" if path else key
            shown = name if name.isprintable() else repr(name)
            raise ValueError(
                f"{shown} is {value!r:.60}, which is not supported: "
                f"clearformer would give other ids than the original tokenizer"
            )
    return data


def expect(data: Any, path: str, **expected: Any) -> None:
    """Each key must have the value given, or one of a tuple of values."""
    for key, values in expected.items():
        got = data.get(key) if isinstance(data, dict) else None
        allowed = values if isinstance(values, tuple) else (values,)
        if not any(got == each and type(got) is type(each) for each in allowed):
            names = " or ".join(repr(each) for each in allowed)
            raise ValueError(f"{path}.{key} is {got!r:.60}, but only {names} is supported")


def require_list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{path} is {value!r:.60}, but it must be a list")
    return value


def read_merges(model: Mapping[str, Any]) -> Merges:
    """The merges, written as pairs or as two words."""
    merges = []
    for merge in require_list(model.get("merges"), "model.merges"):
        match merge.split(" ") if isinstance(merge, str) else merge:
            case [str(first), str(second)]:
                merges.append((first, second))
            case _:
                raise ValueError(f"model.merges has {merge!r:.60}, but a merge has two tokens")
    return tuple(merges)


def read_special_vocabulary(data: Mapping[str, Any]) -> tuple[dict[str, int], tuple[str, ...]]:
    """`read_vocabulary` where all added tokens must be special."""
    vocabulary, specials, added = read_vocabulary(data)
    if added:
        raise ValueError(f"added_tokens has {added[0]!r:.60}, which is not a special token")
    return vocabulary, specials


def read_vocabulary(
    data: Mapping[str, Any],
) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]:
    """The vocabulary sorted by id, the special tokens, and the other added tokens."""
    entries = data["model"].get("vocab")
    if not isinstance(entries, dict):
        raise ValueError(f"model.vocab is {entries!r:.60}, but it must be an object")
    vocabulary = dict(entries)
    specials: list[str] = []
    added: list[str] = []
    for token in require_list(data.get("added_tokens", []), "added_tokens"):
        names = {"id", "content", "special", "normalized"}
        content = require_keys(token, "added_tokens", names).get("content")
        if not isinstance(content, str) or not content:
            raise ValueError(f"added_tokens has {content!r:.60}, which is not a special token")
        expect(token, "added_tokens", special=(True, False))
        # Such a token is matched in the normalized text: with lowercasing, [mask] would be [MASK].
        if token.get("normalized") not in _OFF and data.get("normalizer") is not None:
            raise ValueError(
                f"the special token {content!r:.60} has normalized on, which is not supported: "
                f"clearformer matches it in the original text"
            )
        if vocabulary.setdefault(content, token.get("id")) != token.get("id"):
            raise ValueError(f"the special token {content!r} has two ids")
        (specials if token["special"] else added).append(content)
    ids = list(vocabulary.values())
    if not all(type(i) is int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise ValueError(f"the ids are not the numbers from 0 to {len(ids) - 1}, each once")
    ordered = dict(sorted(vocabulary.items(), key=lambda item: item[1]))
    return ordered, tuple(specials), tuple(added)


def read_prefix(data: Any, vocabulary: Mapping[str, int]) -> tuple[str, ...]:
    """The special tokens that a post-processor puts before a text; a suffix is refused."""
    stages = [data]
    if isinstance(data, dict) and data.get("type") == "Sequence":
        stages = require_list(data.get("processors"), f"{_POST}.processors")
    prefix: tuple[str, ...] = ()
    for stage in stages:
        if stage is None:
            continue
        expect(stage, _POST, type=("ByteLevel", "TemplateProcessing"))
        if stage["type"] == "ByteLevel":  # changes offsets, not ids
            continue
        before, after = _read_template(stage)
        if prefix or after:
            raise ValueError(
                f"{_POST}.single is {stage['single']!r:.60}, but only special tokens before the "
                f"text are supported"
            )
        _require_template_ids(stage, before, vocabulary)
        prefix = before
    return prefix


def _read_template(template: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The special tokens that a template puts before and after a single text."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = require_list(template.get("single"), f"{_POST}.single")
    names = [
        part["SpecialToken"].get("id")
        for part in single
        if isinstance(part, dict) and isinstance(part.get("SpecialToken"), dict)
    ]
    expected = [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]
    index = single.index(text) if text in single else 0
    expected.insert(index, text)
    if single != expected or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"{_POST}.single is {single!r:.60}, but only special tokens around one text are "
            f"supported"
        )
    return tuple(names[:index]), tuple(names[index:])


def _require_template_ids(
    template: Any, names: Sequence[str], vocabulary: Mapping[str, int]
) -> None:
    """The library inserts the ids of the template, whatever the vocabulary says."""
    entries = template.get("special_tokens")
    for name in names:
        entry = entries.get(name) if isinstance(entries, dict) else None
        ids = entry.get("ids") if isinstance(entry, dict) else None
        if name not in vocabulary or ids != [vocabulary[name]]:
            raise ValueError(
                f"{_POST}.special_tokens gives {name!r:.60} the ids {ids!r:.60}, but the "
                f"vocabulary {vocabulary.get(name)}: they contradict"
            )


def _require_bert_template(data: Any, vocabulary: Mapping[str, int]) -> None:
    """[CLS] text [SEP], or nothing: `prefix_ids` and `suffix_ids` do that."""
    if data is None:
        return
    expect(data, _POST, type=("TemplateProcessing", "BertProcessing"))
    names = ("[CLS]", "[SEP]")
    if data["type"] == "TemplateProcessing":
        actual: Any = _read_template(data)
        expected: Any = tuple((name,) for name in names)
    else:
        actual = data.get("cls"), data.get("sep")
        expected = tuple([name, vocabulary.get(name)] for name in names)
    if actual != expected:
        raise ValueError(
            f"{_POST} puts {actual[0]!r:.60} before a text and {actual[1]!r:.60} after it, but "
            f"only [CLS] and [SEP] are supported"
        )
    if data["type"] == "TemplateProcessing":
        _require_template_ids(data, names, vocabulary)


def _read_pattern(data: Any) -> str:
    """The name of the split pattern of a byte-level pre-tokenizer."""
    level, pattern = data, "gpt2"
    if isinstance(data, dict) and data.get("type") == "Sequence":
        stages = require_list(data.get("pretokenizers"), "pre_tokenizer.pretokenizers")
        if len(stages) != 2:
            raise ValueError(f"pre_tokenizer has {len(stages)} stages, but 2 are supported")
        split, level = stages
        expect(split, "pre_tokenizer", type="Split", behavior="Isolated", invert=False)
        regex = split["pattern"].get("Regex") if isinstance(split.get("pattern"), dict) else None
        names = {each: name for name, each in PATTERNS.items()}
        if not isinstance(regex, str) or regex not in names:
            raise ValueError(
                f"pre_tokenizer splits by the pattern {regex!r:.120}, which is not one of the "
                f"published ones ({', '.join(PATTERNS)}): an unknown pattern may hang for ever"
            )
        pattern = names[regex]
    expect(level, "pre_tokenizer", type="ByteLevel", add_prefix_space=False)
    if "use_regex" in level or level is not data:  # older files have no such key: it was on
        expect(level, "pre_tokenizer", use_regex=level is data)
    return pattern
