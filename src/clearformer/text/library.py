"""The `tokenizers` library's JSON, read strictly and written exactly.

A tokenizer file may come from anywhere, and the library trusts it: a bad regular expression
hangs it, a bad merge ends in a Rust panic, a dropout makes encoding random. So a file is read
here into the few values that we understand, anything else in it is refused by name, and the
library only ever sees JSON written from those values.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from clearformer.text.parts import LONGEST_WORD, PATTERNS, BytePairParts, WordPieceParts

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


class Parts(Protocol):
    """What all of a library's tokenizers have."""

    @property
    def vocabulary(self) -> tuple[str, ...]: ...

    @property
    def specials(self) -> tuple[str, ...]: ...


def read_byte_pairs(data: Any) -> BytePairParts:
    """The values in a library's JSON, if it is byte-level BPE as we know it."""
    known_keys(data, "", {"version", "model", "added_tokens", "pre_tokenizer", "decoder", _POST})
    model = known_keys(data.get("model"), "model", {"type", "vocab", "merges", "ignore_merges"})
    expect(model, "model", "type", "BPE")
    specials = added_tokens(data, vocabulary := vocabulary_of(model))
    return BytePairParts(
        vocabulary=tuple(vocabulary),
        merges=tuple(merges_of(model)),
        pattern=_read_pattern(data.get("pre_tokenizer")),
        whole_words=model.get("ignore_merges") is True,
        specials=specials,
        opening=opening_tokens(data.get(_POST)),
    )


def write_byte_pairs(parts: BytePairParts) -> dict[str, Any]:
    """JSON that the library reads; it says nothing that `read_byte_pairs` does not know."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    split = {
        "type": "Split",
        "pattern": {"Regex": PATTERNS[parts.pattern]},
        "behavior": "Isolated",
        "invert": False,
    }
    rest = {**level, "use_regex": False}
    # Only where there is something to open with: the identity of all others stays as it was.
    post = {_POST: write_template(parts, parts.opening, ())} if parts.opening else {}
    return document(
        parts,
        model={
            "type": "BPE",
            "ignore_merges": parts.whole_words,
            "merges": [list(merge) for merge in parts.merges],
        },
        normalizer=None,
        # GPT-2's pattern is built in, and faster so.
        pre_tokenizer={**level, "use_regex": True}
        if parts.pattern == "gpt2"
        else {"type": "Sequence", "pretokenizers": [split, rest]},
        decoder={**level, "use_regex": True},
        **post,
    )


def read_word_pieces(data: Any) -> WordPieceParts:
    """The values in a library's JSON, if it is WordPiece as BERT's."""
    known = {"version", "model", "added_tokens", "normalizer", "pre_tokenizer", "decoder", _POST}
    known_keys(data, "", known)
    names = {"type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"}
    model = known_keys(data.get("model"), "model", names)
    expect(model, "model", "type", "WordPiece")
    expect(model, "model", "unk_token", "[UNK]")
    expect(model, "model", "continuing_subword_prefix", "##")
    expect(model, "model", "max_input_chars_per_word", LONGEST_WORD)
    expect(data.get("pre_tokenizer"), "pre_tokenizer", "type", "BertPreTokenizer")
    normalizer = data.get("normalizer")
    expect(normalizer, "normalizer", "type", "BertNormalizer")
    expect(normalizer, "normalizer", "clean_text", True)
    if data.get(_POST) is not None:  # [CLS] text [SEP]: `before` and `after` do that
        expect(data[_POST], _POST, "type", "TemplateProcessing", "BertProcessing")
    specials = added_tokens(data, vocabulary := vocabulary_of(model))
    accents = normalizer.get("strip_accents")
    return WordPieceParts(
        vocabulary=tuple(vocabulary),
        lowercase=normalizer.get("lowercase") is True,
        strip_accents=None if accents is None else accents is True,
        separate_chinese=normalizer.get("handle_chinese_chars") is True,
        specials=specials,
    )


def write_word_pieces(parts: WordPieceParts) -> dict[str, Any]:
    """JSON that the library reads; it says nothing that `read_word_pieces` does not know."""
    return document(
        parts,
        model={
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
        },
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": parts.separate_chinese,
            "strip_accents": parts.strip_accents,
            "lowercase": parts.lowercase,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def write_template(parts: Parts, opening: Sequence[str], closing: Sequence[str]) -> dict[str, Any]:
    """How the library puts marks around a text, and around two texts as BERT does."""

    def marks(names: Sequence[str], text: int) -> list[Any]:
        return [{"SpecialToken": {"id": name, "type_id": text}} for name in names]

    def text(name: str, number: int) -> list[Any]:
        return [{"Sequence": {"id": name, "type_id": number}}, *marks(closing, number)]

    ids = {name: parts.vocabulary.index(name) for name in dict.fromkeys((*opening, *closing))}
    return {
        "type": "TemplateProcessing",
        "single": [*marks(opening, 0), *text("A", 0)],
        "pair": [*marks(opening, 0), *text("A", 0), *text("B", 1)],
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]} for name, number in ids.items()
        },
    }


def open_library(document: dict[str, Any]) -> "Library":
    """The library's tokenizer; loaded only now, since importing it takes a while."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(document))


# --- one value at a time -------------------------------------------------------------------

_POST = "post_processor"
_OFF: tuple[Any, ...] = (None, False, "", [])  # a setting with one of these changes nothing


def document(parts: Parts, model: dict[str, Any], **stages: Any) -> dict[str, Any]:
    ids = {token: i for i, token in enumerate(parts.vocabulary)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": ids[token], "content": token, **plain, "special": True}
            for token in sorted(parts.specials, key=ids.__getitem__)
        ],
        "model": {**model, "vocab": ids},
        **stages,
    }


def known_keys(data: Any, path: str, known: set[str]) -> dict[str, Any]:
    """A setting that is on and unknown is refused: ignoring it would give other ids."""
    if not isinstance(data, dict):
        raise ValueError(f"{path or 'the tokenizer'} is {data!r:.60}, but it must be an object")
    for key, value in data.items():
        if key not in known and value not in _OFF:
            name = f"{path}.{key}" if path else key
            shown = name if name.isprintable() else repr(name)
            raise ValueError(
                f"{shown} is {value!r:.60}, which is not supported: "
                f"clearformer would give other ids than the tokenizer's maker meant"
            )
    return data


def expect(data: Any, path: str, key: str, *wanted: Any) -> None:
    got = data.get(key) if isinstance(data, dict) else None
    if not any(got == each and type(got) is type(each) for each in wanted):
        names = " or ".join(repr(each) for each in wanted)
        raise ValueError(f"{path}.{key} is {got!r:.60}, but only {names} is supported")


def a_list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{path} is {value!r:.60}, but it must be a list")
    return value


def vocabulary_of(model: dict[str, Any]) -> dict[str, int]:
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict):
        raise ValueError(f"model.vocab is {vocabulary!r:.60}, but it must be an object")
    return dict(vocabulary)


def merges_of(model: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The merges, written as pairs or as two words."""
    for merge in a_list(model.get("merges"), "model.merges"):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(p, str) for p in pair)
        ):
            raise ValueError(f"model.merges has {merge!r:.60}, but a merge is of two tokens")
        yield pair[0], pair[1]


def added_tokens(data: Mapping[str, Any], vocabulary: dict[str, int]) -> tuple[str, ...]:
    """The special tokens; they and their ids are put into the vocabulary, which is sorted."""
    specials: list[str] = []
    for token in a_list(data.get("added_tokens", []), "added_tokens"):
        names = {"id", "content", "special", "normalized"}
        content = known_keys(token, "added_tokens", names).get("content")
        if not isinstance(content, str) or not content or token.get("special") is not True:
            raise ValueError(f"added_tokens has {content!r:.60}, which is no special token")
        if vocabulary.setdefault(content, token.get("id")) != token.get("id"):
            raise ValueError(f"the special token {content!r} has two ids")
        specials.append(content)
    ids = list(vocabulary.values())
    if not all(type(i) is int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise ValueError(f"the ids must be 0 to {len(ids) - 1}, each once, and they are not")
    ordered = sorted(vocabulary.items(), key=lambda item: item[1])
    vocabulary.clear()
    vocabulary.update(ordered)
    return tuple(specials)


def opening_tokens(data: Any) -> tuple[str, ...]:
    """The special tokens that a post-processor puts before a text; anything after is refused."""
    stages = [data]
    if isinstance(data, dict) and data.get("type") == "Sequence":
        stages = a_list(data.get("processors"), f"{_POST}.processors")
    opening: tuple[str, ...] = ()
    for stage in stages:
        if stage is None:
            continue
        expect(stage, _POST, "type", "ByteLevel", "TemplateProcessing")
        if stage["type"] == "ByteLevel":  # moves offsets, no ids
            continue
        *marks, text = a_list(stage.get("single"), f"{_POST}.single") or [None]
        names = [
            mark["SpecialToken"].get("id")
            for mark in marks
            if isinstance(mark, dict) and isinstance(mark.get("SpecialToken"), dict)
        ]
        plain = isinstance(text, dict) and set(text) == {"Sequence"} and len(names) == len(marks)
        if not plain or opening or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"{_POST}.single is {stage['single']!r:.60}, but only special tokens before the "
                f"text are supported"
            )
        opening = tuple(names)
    return opening


def _read_pattern(data: Any) -> str:
    level, pattern = data, "gpt2"
    if isinstance(data, dict) and data.get("type") == "Sequence":
        stages = a_list(data.get("pretokenizers"), "pre_tokenizer.pretokenizers")
        if len(stages) != 2:
            raise ValueError(f"pre_tokenizer has {len(stages)} stages, but 2 are supported")
        split, level = stages
        expect(split, "pre_tokenizer", "type", "Split")
        expect(split, "pre_tokenizer", "behavior", "Isolated")
        expect(split, "pre_tokenizer", "invert", False)
        regex = split["pattern"].get("Regex") if isinstance(split.get("pattern"), dict) else None
        names = {each: name for name, each in PATTERNS.items()}
        if not isinstance(regex, str) or regex not in names:
            raise ValueError(
                f"pre_tokenizer splits by the pattern {regex!r:.120}, which is not one of the "
                f"published ones ({', '.join(PATTERNS)}): an unknown pattern may hang for ever"
            )
        pattern = names[regex]
    expect(level, "pre_tokenizer", "type", "ByteLevel")
    expect(level, "pre_tokenizer", "add_prefix_space", False)
    expect(level, "pre_tokenizer", "use_regex", level is data)
    return pattern
