"""The `tokenizers` library's JSON, read strictly and written exactly.

A tokenizer file may come from anywhere, and the library trusts it: a bad regular expression
hangs it, a bad merge ends in a Rust panic, a dropout makes encoding random. So a file is read
here into the few values that we understand, anything else in it is refused by name, and the
library only ever sees JSON written from those values.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from clearformer.text.specs import LONGEST_WORD, PATTERNS, BytePairSpec, WordPieceSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


class Spec(Protocol):
    """What all of a library's tokenizers have."""

    @property
    def vocabulary(self) -> tuple[str, ...]: ...

    @property
    def specials(self) -> tuple[str, ...]: ...


def read_byte_pairs(data: Any) -> BytePairSpec:
    """The values in a library's JSON, if it is byte-level BPE as we know it."""
    known = {"version", "model", "added_tokens", "pre_tokenizer", "decoder", _POST}
    composed = isinstance(data, dict) and data.get("normalizer") == _NFC
    known_keys(data, "", known | {"normalizer"} if composed else known)
    model = known_keys(data.get("model"), "model", {"type", "vocab", "merges", "ignore_merges"})
    expect(model, "model", "type", "BPE")
    specials, whole = all_added_tokens(data, vocabulary := vocabulary_of(model))
    return BytePairSpec(
        vocabulary=tuple(vocabulary),
        merges=tuple(merges_of(model)),
        pattern=_read_pattern(data.get("pre_tokenizer")),
        whole_words=model.get("ignore_merges") is True,
        specials=specials,
        opening=opening_tokens(data.get(_POST), vocabulary),
        whole=whole,
        normal_form="NFC" if composed else None,
    )


def write_byte_pairs(spec: BytePairSpec) -> dict[str, Any]:
    """JSON that the library reads; it says nothing that `read_byte_pairs` does not know."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    split = {
        "type": "Split",
        "pattern": {"Regex": PATTERNS[spec.pattern]},
        "behavior": "Isolated",
        "invert": False,
    }
    rest = {**level, "use_regex": False}
    # Only where there is something to open with: the identity of all others stays as it was.
    post = {_POST: write_template(spec, spec.opening, ())} if spec.opening else {}
    return document(
        spec,
        model={
            "type": "BPE",
            "ignore_merges": spec.whole_words,
            "merges": [list(merge) for merge in spec.merges],
        },
        whole=spec.whole,
        normalizer=_NFC if spec.normal_form else None,
        # GPT-2's pattern is built in, and faster so.
        pre_tokenizer={**level, "use_regex": True}
        if spec.pattern == "gpt2"
        else {"type": "Sequence", "pretokenizers": [split, rest]},
        decoder={**level, "use_regex": True},
        **post,
    )


def read_word_pieces(data: Any) -> WordPieceSpec:
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
    known_keys(data["pre_tokenizer"], "pre_tokenizer", {"type"})
    expect(data.get("normalizer"), "normalizer", "type", "BertNormalizer")
    names = {"type", "clean_text", "lowercase", "strip_accents", "handle_chinese_chars"}
    normalizer = known_keys(data["normalizer"], "normalizer", names)
    expect(normalizer, "normalizer", "clean_text", True)
    for name in ("lowercase", "handle_chinese_chars"):
        expect(normalizer, "normalizer", name, True, False)
    expect(normalizer, "normalizer", "strip_accents", None, True, False)
    specials = added_tokens(data, vocabulary := vocabulary_of(model))
    _require_berts_marks(data.get(_POST), vocabulary)
    return WordPieceSpec(
        vocabulary=tuple(vocabulary),
        lowercase=normalizer["lowercase"],
        strip_accents=normalizer.get("strip_accents"),
        separate_chinese=normalizer["handle_chinese_chars"],
        specials=specials,
    )


def write_word_pieces(spec: WordPieceSpec) -> dict[str, Any]:
    """JSON that the library reads; it says nothing that `read_word_pieces` does not know."""
    return document(
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
            "handle_chinese_chars": spec.separate_chinese,
            "strip_accents": spec.strip_accents,
            "lowercase": spec.lowercase,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def write_template(spec: Spec, opening: Sequence[str], closing: Sequence[str]) -> dict[str, Any]:
    """How the library puts marks around a text, and around two texts as BERT does."""

    def marks(names: Sequence[str], text: int) -> list[Any]:
        return [{"SpecialToken": {"id": name, "type_id": text}} for name in names]

    def text(name: str, number: int) -> list[Any]:
        return [{"Sequence": {"id": name, "type_id": number}}, *marks(closing, number)]

    ids = {name: spec.vocabulary.index(name) for name in dict.fromkeys((*opening, *closing))}
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
_NFC = {"type": "NFC"}
_OFF: tuple[Any, ...] = (None, False, "", [])  # a setting with one of these changes nothing


def document(
    spec: Spec, model: dict[str, Any], whole: Sequence[str] = (), **stages: Any
) -> dict[str, Any]:
    ids = {token: i for i, token in enumerate(spec.vocabulary)}
    special = set(spec.specials)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": ids[token], "content": token, **plain, "special": token in special}
            for token in sorted((*spec.specials, *whole), key=ids.__getitem__)
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
    """The special tokens, where there may be no others; see `all_added_tokens`."""
    specials, whole = all_added_tokens(data, vocabulary)
    if whole:
        raise ValueError(f"added_tokens has {whole[0]!r:.60}, which is no special token")
    return specials


def all_added_tokens(
    data: Mapping[str, Any], vocabulary: dict[str, int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The special tokens, and those that any text may name.

    They and their ids are put into the vocabulary, which is sorted.
    """
    specials: list[str] = []
    whole: list[str] = []
    for token in a_list(data.get("added_tokens", []), "added_tokens"):
        names = {"id", "content", "special", "normalized"}
        content = known_keys(token, "added_tokens", names).get("content")
        if not isinstance(content, str) or not content:
            raise ValueError(f"added_tokens has {content!r:.60}, which is no special token")
        expect(token, "added_tokens", "special", True, False)
        # Such a token is looked for in the normalized text: where there is lowercasing, [mask]
        # would be [MASK].
        if token.get("normalized") not in _OFF and data.get("normalizer") is not None:
            raise ValueError(
                f"the special token {content!r:.60} has normalized on, which is not supported: "
                f"clearformer looks for it in the text as it is"
            )
        if vocabulary.setdefault(content, token.get("id")) != token.get("id"):
            raise ValueError(f"the special token {content!r} has two ids")
        (specials if token["special"] else whole).append(content)
    ids = list(vocabulary.values())
    if not all(type(i) is int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise ValueError(f"the ids must be 0 to {len(ids) - 1}, each once, and they are not")
    ordered = sorted(vocabulary.items(), key=lambda item: item[1])
    vocabulary.clear()
    vocabulary.update(ordered)
    return tuple(specials), tuple(whole)


def opening_tokens(data: Any, vocabulary: Mapping[str, int]) -> tuple[str, ...]:
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
        before, after = _marks(stage)
        if opening or after:
            raise ValueError(
                f"{_POST}.single is {stage['single']!r:.60}, but only special tokens before the "
                f"text are supported"
            )
        _require_ids(stage, before, vocabulary)
        opening = before
    return opening


def _marks(template: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The special tokens that a template puts before and behind a single text."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = a_list(template.get("single"), f"{_POST}.single")
    names = [
        part["SpecialToken"].get("id")
        for part in single
        if isinstance(part, dict) and isinstance(part.get("SpecialToken"), dict)
    ]
    wanted = [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]
    place = single.index(text) if text in single else 0
    wanted.insert(place, text)
    if single != wanted or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"{_POST}.single is {single!r:.60}, but only special tokens around one text are "
            f"supported"
        )
    return tuple(names[:place]), tuple(names[place:])


def _require_ids(template: Any, names: Sequence[str], vocabulary: Mapping[str, int]) -> None:
    """The library puts in the numbers of the template, whatever a name means elsewhere."""
    known = template.get("special_tokens")
    for name in names:
        entry = known.get(name) if isinstance(known, dict) else None
        ids = entry.get("ids") if isinstance(entry, dict) else None
        if name not in vocabulary or ids != [vocabulary[name]]:
            raise ValueError(
                f"{_POST}.special_tokens gives {name!r:.60} the ids {ids!r:.60}, but the "
                f"vocabulary {vocabulary.get(name)}: they contradict"
            )


def _require_berts_marks(data: Any, vocabulary: Mapping[str, int]) -> None:
    """[CLS] text [SEP], or nothing: `before` and `after` do that."""
    if data is None:
        return
    expect(data, _POST, "type", "TemplateProcessing", "BertProcessing")
    if data["type"] == "TemplateProcessing":
        found: Any = _marks(data)
        wanted: Any = ("[CLS]",), ("[SEP]",)
    else:
        found = data.get("cls"), data.get("sep")
        wanted = tuple([name, vocabulary.get(name)] for name in ("[CLS]", "[SEP]"))
    if found != wanted:
        raise ValueError(
            f"{_POST} puts {found[0]!r:.60} before a text and {found[1]!r:.60} behind it, but only "
            f"[CLS] and [SEP] are supported"
        )
    if data["type"] == "TemplateProcessing":
        _require_ids(data, ("[CLS]", "[SEP]"), vocabulary)


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
    if "use_regex" in level or level is not data:  # before it had a name, it was on
        expect(level, "pre_tokenizer", "use_regex", level is data)
    return pattern
