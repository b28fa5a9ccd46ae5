"""What the files beside a tokenizer ask of it, and which class they name to open it.

A class of `transformers` may take from tokenizer.json no more than its vocabulary and do the rest
in its own way. So a wish is either what the tokenizer does anyway, or it is done, or refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearformer.safe_json import read_json

CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
END = "<|endoftext|>"

GPT2, BERT, LLAMA, QWEN2 = "GPT2Tokenizer", "BertTokenizer", "LlamaTokenizer", "Qwen2Tokenizer"
WHOLE = "PreTrainedTokenizer"  # whatever tokenizer.json says
CALLED = {name: name for name in (GPT2, BERT, LLAMA, QWEN2, WHOLE)} | {"TokenizersBackend": WHOLE}
OF_MODEL = {"gpt2": GPT2, "bert": BERT, "qwen2": QWEN2, "qwen3": QWEN2}  # where none is named
# The special tokens that a class has where nobody names others.
USUAL: dict[str | None, dict[str, str]] = {
    GPT2: {"unk_token": END, "bos_token": END, "eos_token": END},
    QWEN2: {"unk_token": END, "eos_token": END, "pad_token": END},
    LLAMA: {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    BERT: {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")},
}
SEVERAL = ("additional_special_tokens", "extra_special_tokens")
TRIMS = ("lstrip", "rstrip", "single_word")


@dataclass(frozen=True)
class Wishes:
    """All that the files beside a tokenizer say, read and checked for its form."""

    opener: str | None  # the class; None: nobody says
    settings: dict[str, Any]  # of tokenizer_config.json
    roles: dict[str, str | None]  # "bos_token" and its like: a special token
    others: tuple[str, ...]  # special tokens without a role
    added: dict[str, dict[str, Any]]  # tokens on top of the vocabulary: "id", "special" and more
    model: dict[str, Any]  # config.json of the model

    def flag(self, name: str) -> bool | None:
        """A setting that is on, off or not there."""
        value = self.settings.get(name)
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r:.40}, but it must be true or false")
        return value

    def asked(self, name: str, usual: bool) -> bool:
        value = self.flag(name)
        return usual if value is None else value

    def refuse(self, *names: str) -> None:
        for name in names:
            if self.flag(name):
                raise ValueError(f"{name} is on, which is not supported: {ADVICE}")

    def agree(self, name: str, done: bool, where: str = "tokenizer.json") -> None:
        """A setting that is asked for must be what is done."""
        asked = self.flag(name)
        if asked is not None and asked is not done:
            raise ValueError(
                f"{CONFIG} sets {name} to {asked}, and {where} says {done}: they contradict, so "
                f"correct the one that is wrong"
            )

    def opened_by(self, what: str, *openers: str) -> None:
        """Refuse a class that would make another tokenizer of these files."""
        if self.opener is not None and self.opener not in openers:
            names = " or ".join(openers)
            raise ValueError(
                f"tokenizer_class is {self.opener!r:.60}, but {what} is read as {names}: name one "
                f"of these if the file is right"
            )

    def special(self, ids: dict[str, int], where: str) -> tuple[str, ...]:
        """The special tokens by role or without one; each must have an id."""
        defaults = USUAL.get(self.opener, {})
        usual = [name for role, name in defaults.items() if role not in self.roles]
        named = [name for name in self.roles.values() if name is not None]
        for name in (*named, *self.others):
            if name not in ids:
                raise ValueError(
                    f"{name!r:.60} is named as a special token, but {where} does not have it: "
                    f"take the files from their source again"
                )
        found = (*(name for name in usual if name in ids), *named, *self.others)
        return tuple(dict.fromkeys(found))


ADVICE = "clearformer would give other ids than the tokenizer's maker meant"


def read_wishes(folder: Path) -> Wishes:
    """What stands beside a tokenizer in its folder."""
    settings = read_object(folder / CONFIG)
    model = read_object(folder / "config.json")
    decoder = settings.get("added_tokens_decoder")
    # Where the config lists added tokens, it is the newer one, and the older files do not count.
    map_ = read_object(folder / MAP) if decoder is None else {}
    merged = {**settings, **map_}
    others: list[str] = []
    for name in SEVERAL:
        others += [_content(each, name) for each in _several(merged.get(name), name)]
    roles = {
        name: None if value is None else _content(value, name)
        for name, value in merged.items()
        if name.endswith("_token") and (value is None or isinstance(value, (str, dict)))
    }
    wishes = Wishes(
        opener=_opener(settings, model),
        settings=settings,
        roles=roles,
        others=tuple(others),
        added=_added(decoder) if decoder is not None else _older(read_object(folder / ADDED)),
        model=model,
    )
    wishes.refuse("split_special_tokens")
    return wishes


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no such file."""
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise ValueError(f"{path} is {found!r:.40}, but it must be an object")
    return found


def _opener(settings: dict[str, Any], model: dict[str, Any]) -> str | None:
    named = settings.get("tokenizer_class", model.get("tokenizer_class"))
    kind = model.get("model_type")
    usual = OF_MODEL.get(kind) if isinstance(kind, str) else None
    if named is None:
        return usual
    if not isinstance(named, str):
        raise ValueError(f"tokenizer_class is {named!r:.40}, but it must be a name")
    plain = named.removesuffix("Fast")
    # Hugging Face opens a Qwen2 as such even if another model's tokenizer is named.
    return QWEN2 if usual == QWEN2 and plain == GPT2 else CALLED.get(plain, named)


def _several(value: Any, name: str) -> list[Any]:
    if isinstance(value, dict):  # with roles of their own, which change no id
        value = list(value.values())
    if not isinstance(value, list | None):
        raise ValueError(f"{name} is {value!r:.40}, but it must be a list of tokens")
    return value or []


def _content(value: Any, name: str) -> str:
    """The token itself: a name, or an object with how it is looked for."""
    content = value.get("content") if isinstance(value, dict) else value
    if not isinstance(content, str) or not content:
        raise ValueError(f"{name} is {value!r:.60}, but it must be a token")
    for trim in TRIMS:
        if isinstance(value, dict) and value.get(trim) not in (None, False):
            raise ValueError(f"{name} has {trim} on, which is not supported: {ADVICE}")
    return content


def _added(decoder: Any) -> dict[str, dict[str, Any]]:
    """Tokens by number, as tokenizer_config.json lists them."""
    if not isinstance(decoder, dict) or not all(isinstance(t, dict) for t in decoder.values()):
        raise ValueError(f"added_tokens_decoder is {decoder!r:.60}, but it must list tokens by id")
    found = {}
    for number, token in decoder.items():
        content = _content(token, "added_tokens_decoder")
        if not number.isascii() or not number.isdecimal() or len(number) > 10:
            raise ValueError(f"added_tokens_decoder has the id {number!r:.40}, which is no number")
        found[content] = {**token, "id": int(number)}
    return found


def _older(ids: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Tokens with their numbers, as in added_tokens.json, which does not say which are special."""
    return {content: {"content": content, "id": number} for content, number in ids.items()}
