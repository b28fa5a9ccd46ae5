"""The configuration files beside a tokenizer, and the class that they name to open it.

A class of `transformers` may read only the vocabulary from tokenizer.json and do the rest in its
own way. So every setting is either what the tokenizer does anyway, or followed, or refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearformer.safe_json import read_json

CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
END = "<|endoftext|>"

GPT2, BERT, LLAMA, QWEN2 = "GPT2Tokenizer", "BertTokenizer", "LlamaTokenizer", "Qwen2Tokenizer"
GENERIC = "PreTrainedTokenizer"  # does what tokenizer.json says
KNOWN_CLASSES = {name: name for name in (GPT2, BERT, LLAMA, QWEN2, GENERIC)} | {
    "TokenizersBackend": GENERIC
}
CLASS_OF_MODEL = {"gpt2": GPT2, "bert": BERT, "qwen2": QWEN2, "qwen3": QWEN2}  # by default
# The default special tokens of each class.
DEFAULT_TOKENS: dict[str | None, dict[str, str]] = {
    GPT2: {"unk_token": END, "bos_token": END, "eos_token": END},
    QWEN2: {"unk_token": END, "eos_token": END, "pad_token": END},
    LLAMA: {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    BERT: {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")},
}
TOKEN_LISTS = ("additional_special_tokens", "extra_special_tokens")
STRIP_FLAGS = ("lstrip", "rstrip", "single_word")


@dataclass(frozen=True)
class TokenizerConfig:
    """The content of these files, checked for its form."""

    tokenizer_class: str | None  # None: not named
    settings: dict[str, Any]  # of tokenizer_config.json
    roles: dict[str, str | None]  # special tokens by role, such as "bos_token"
    others: tuple[str, ...]  # special tokens without a role
    added: dict[str, dict[str, Any]]  # added tokens by content: "id", "special" and more
    model: dict[str, Any]  # config.json of the model

    def flag(self, name: str) -> bool | None:
        """A boolean setting; None if it is absent."""
        value = self.settings.get(name)
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r:.40}, but it must be true or false")
        return value

    def flag_or(self, name: str, default: bool) -> bool:
        value = self.flag(name)
        return default if value is None else value

    def refuse(self, *names: str) -> None:
        for name in names:
            if self.flag(name):
                raise ValueError(f"{name} is on, which is not supported: {ADVICE}")

    def require_flag(self, name: str, actual: bool) -> None:
        """Refuse a setting that contradicts what tokenizer.json does."""
        value = self.flag(name)
        if value is not None and value is not actual:
            raise ValueError(
                f"{CONFIG} sets {name} to {value}, and tokenizer.json says {actual}: they "
                f"contradict, so correct the one that is wrong"
            )

    def require_class(self, content: str, *classes: str) -> None:
        """Refuse a class that would read these files differently."""
        if self.tokenizer_class is not None and self.tokenizer_class not in classes:
            names = " or ".join(classes)
            raise ValueError(
                f"tokenizer_class is {self.tokenizer_class!r:.60}, but {content} is read as "
                f"{names}: use one of these if the file is right"
            )

    def special(self, ids: dict[str, int], where: str) -> tuple[str, ...]:
        """All special tokens, with or without a role; each must have an id."""
        defaults = DEFAULT_TOKENS.get(self.tokenizer_class, {})
        absent = [name for role, name in defaults.items() if role not in self.roles]
        named = [name for name in self.roles.values() if name is not None]
        for name in (*named, *self.others):
            if name not in ids:
                raise ValueError(
                    f"{name!r:.60} is named as a special token, but {where} does not have it: "
                    f"get the files from their source again"
                )
        tokens = (*(name for name in absent if name in ids), *named, *self.others)
        return tuple(dict.fromkeys(tokens))


ADVICE = "clearformer would give other ids than the original tokenizer"


def read_tokenizer_config(folder: Path) -> TokenizerConfig:
    """Read the configuration files of a folder."""
    settings = read_object(folder / CONFIG)
    model = read_object(folder / "config.json")
    decoder = settings.get("added_tokens_decoder")
    # A config that lists added tokens is of the newer kind, and the older files are not read.
    map_ = read_object(folder / MAP) if decoder is None else {}
    merged = {**settings, **map_}
    others: list[str] = []
    for name in TOKEN_LISTS:
        others += [_content(each, name) for each in _token_list(merged.get(name), name)]
    roles = {
        name: None if value is None else _content(value, name)
        for name, value in merged.items()
        if name.endswith("_token") and (value is None or isinstance(value, (str, dict)))
    }
    config = TokenizerConfig(
        tokenizer_class=_tokenizer_class(settings, model),
        settings=settings,
        roles=roles,
        others=tuple(others),
        added=_added_by_id(decoder)
        if decoder is not None
        else _added_by_content(read_object(folder / ADDED)),
        model=model,
    )
    config.refuse("split_special_tokens")
    return config


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty if there is no such file."""
    data = read_json(path) if path.exists() else {}
    if not isinstance(data, dict):
        raise ValueError(f"{path} is {data!r:.40}, but it must be an object")
    return data


def _tokenizer_class(settings: dict[str, Any], model: dict[str, Any]) -> str | None:
    named = settings.get("tokenizer_class", model.get("tokenizer_class"))
    kind = model.get("model_type")
    default = CLASS_OF_MODEL.get(kind) if isinstance(kind, str) else None
    if named is None:
        return default
    if not isinstance(named, str):
        raise ValueError(f"tokenizer_class is {named!r:.40}, but it must be a name")
    plain = named.removesuffix("Fast")
    # Hugging Face uses Qwen2's class for a Qwen2 even if GPT-2's is named.
    return QWEN2 if default == QWEN2 and plain == GPT2 else KNOWN_CLASSES.get(plain, named)


def _token_list(value: Any, name: str) -> list[Any]:
    if isinstance(value, dict):  # with roles, which change no id
        value = list(value.values())
    if not isinstance(value, list | None):
        raise ValueError(f"{name} is {value!r:.40}, but it must be a list of tokens")
    return value or []


def _content(value: Any, name: str) -> str:
    """The token itself, from a string or an object."""
    content = value.get("content") if isinstance(value, dict) else value
    if not isinstance(content, str) or not content:
        raise ValueError(f"{name} is {value!r:.60}, but it must be a token")
    for flag in STRIP_FLAGS:
        if isinstance(value, dict) and value.get(flag) not in (None, False):
            raise ValueError(f"{name} has {flag} on, which is not supported: {ADVICE}")
    return content


def _added_by_id(decoder: Any) -> dict[str, dict[str, Any]]:
    """Added tokens from the added_tokens_decoder of tokenizer_config.json."""
    if not isinstance(decoder, dict) or not all(isinstance(t, dict) for t in decoder.values()):
        raise ValueError(f"added_tokens_decoder is {decoder!r:.60}, but it must list tokens by id")
    tokens = {}
    for number, token in decoder.items():
        content = _content(token, "added_tokens_decoder")
        if not number.isascii() or not number.isdecimal() or len(number) > 10:
            raise ValueError(
                f"added_tokens_decoder has the id {number!r:.40}, which is not a number"
            )
        tokens[content] = {**token, "id": int(number)}
    return tokens


def _added_by_content(ids: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Added tokens from added_tokens.json, which does not say which are special."""
    return {content: {"content": content, "id": number} for content, number in ids.items()}
