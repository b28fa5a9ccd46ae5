"""Strict reader of a config.json: no key is ignored by accident.

Every key that the reference implementation reads is either read here or listed as one that changes
no output. The reference does not read any other key: `finish` collects their names in `ignored`,
and the importer reports them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeVar

from clearformer import limits
from clearformer.config import Activation, LayerNorm, ModelConfig, Norm, RMSNorm
from clearformer.config.layers import ActivationName
from clearformer.hub import generation_defaults

Value = TypeVar("Value")

# Keys of any config.json that change no output: its origin, what to return besides the output, how
# to train; names of classes, which are read by heads that have some; and generation defaults, which
# are reported.
IGNORED_KEYS = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path _num_labels
    architectures bos_token_id chunk_size_feed_forward classifier_dropout decoder_start_token_id
    diversity_penalty dtype eos_token_id finetuning_task gradient_checkpointing hidden_dropout
    id2label initializer_range label2id max_length model_type num_labels num_return_sequences
    output_attentions output_hidden_states output_past output_scores pad_token_id prefix
    problem_type remove_invalid_values return_dict return_dict_in_generate sep_token_id
    task_specific_params tf_legacy_loss tokenizer_class torch_dtype torchscript
    transformers_version use_bfloat16 use_cache
    """.split()  # noqa: SIM905
)
# Keys that are accepted only with these values.
NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({},),
    "tie_encoder_decoder": (False,),
}

# Activations by their names in transformers; of two names for one, the first is written.
ACTIVATIONS: Mapping[str, ActivationName] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "squared_relu",
    "swish": "silu",
    "silu": "silu",
}


def norm_epsilon(norm: Norm) -> float:
    """The epsilon of LayerNorm or RMSNorm; for other norms the export is refused later."""
    return norm.epsilon if isinstance(norm, LayerNorm | RMSNorm) else 1e-5


def hf_activation(ours: ActivationName | Activation, default: str) -> str:
    return next((theirs for theirs, each in ACTIVATIONS.items() if each == ours), default)


# Our fields that are plain integers in a config.json, and their limits.
SIZES = {
    "vocabulary": limits.MAX_VOCABULARY,
    "length": limits.MAX_LENGTH,
    "layers": limits.MAX_LAYERS,
    "width": limits.MAX_WIDTH,
    "heads": limits.MAX_HEADS,
    "hidden": limits.MAX_HIDDEN,
}
# Their keys in most families.
SIZE_KEYS = {
    "vocabulary": "vocab_size",
    "length": "max_position_embeddings",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "hidden": "intermediate_size",
}


def write_sizes(config: ModelConfig, keys: Mapping[str, str]) -> dict[str, Any]:
    return {theirs: getattr(config, ours) for ours, theirs in keys.items()}


class HFConfig:
    """The keys of a config.json; each must be read or listed as ignored."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = data
        self.where = where
        self.asked: set[str] = set()
        self.ignored: list[str] = []  # keys that the reference implementation does not read either

    def integer(self, name: str, maximum: int, default: int | None = None) -> int:
        """An integer from 1 to `maximum`; required unless there is a default."""
        value = self._value(name, default)
        if type(value) is not int or not 1 <= value <= maximum:
            self.refuse(name, value, f"it must be a whole number from 1 to {maximum:,}")
        return value

    def sizes(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """Our fields by their keys: the inverse of `write_sizes`."""
        return {ours: self.integer(theirs, SIZES[ours]) for ours, theirs in keys.items()}

    def number(self, name: str, default: float, low: float = 0.0, high: float = 1.0) -> float:
        value = self._value(name, default)
        if type(value) not in (int, float) or not low <= value <= high:
            self.refuse(name, value, f"it must be a number from {low:g} to {high:g}")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            self.refuse(name, value, "it must be true or false")
        return value

    def choice(self, name: str, choices: Mapping[str, Value], default: str) -> Value:
        value = self._value(name, default)
        if not isinstance(value, str) or value not in choices:
            self.refuse(name, value, f"clearformer computes {', '.join(choices)}")
        return choices[value]

    def require(self, name: str, *accepted: Any) -> None:
        """Refuse a key that is present with another value than those that we compute."""
        value = self._value(name, None)
        if value is not None and value not in accepted:
            supported = ", ".join(map(repr, accepted)) or "none of it"
            self.refuse(name, value, f"clearformer computes {supported}")

    def rename(self, other: str, name: str) -> None:
        """Read `other` as a second name of a key; both may be present if they agree."""
        alias, value = self.get(other), self.data.get(name)
        if alias is not None and value is not None and alias != value:
            self.refuse(other, alias, f"{name} says {value!r:.60}: they are one setting")
        if value is None and alias is not None:
            self.data = {**self.data, name: alias}

    def get(self, name: str) -> Any:
        return self._value(name, None)

    def finish(self, ignorable: Collection[str] = ()) -> None:
        """Refuse unsupported values, and collect the keys that were not read."""
        for name, accepted in NEUTRAL_VALUES.items():
            if name not in self.asked and name not in ignorable:
                self.require(name, *accepted)
        known = self.asked | IGNORED_KEYS | generation_defaults.NAMES | set(ignorable)
        self.ignored = [
            name for name, value in self.data.items() if name not in known and value is not None
        ]

    def refuse(self, name: str, value: Any, expectation: str) -> NoReturn:
        raise ValueError(f"{self.where}: {name} is {value!r:.60}, but {expectation}")

    def _value(self, name: str, default: Any) -> Any:
        self.asked.add(name)
        value = self.data.get(name)
        return default if value is None else value
