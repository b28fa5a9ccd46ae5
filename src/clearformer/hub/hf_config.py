"""A config.json read key by key; nothing is ignored by accident.

Every key that the reference implementation reads is asked for, or listed as one that changes no
output. A key that is neither, the reference does not read: `close` keeps its name in `ignored`, and
whoever imports is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from clearformer.config import Activation, LayerNorm, Norm, RMSNorm
from clearformer.config.layers import ActivationName
from clearformer.hub import generation_defaults

Value = TypeVar("Value")

# What may stand in any config.json without changing an output: where it came from, what to return
# beside the output, how to train; names of classes, which a head that has some asks for; and how
# to write, of which the user is told.
HARMLESS = frozenset(
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
# What may stand there only in this way.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({},),
    "tie_encoder_decoder": (False,),
}

# Activations by their names in transformers; of two names for one, the first is written.
ACTIVATIONS = {
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
    """Of the two norms that published formats know; reading the export back finds any other."""
    return norm.epsilon if isinstance(norm, LayerNorm | RMSNorm) else 1e-5


def activation_name(ours: ActivationName | Activation, default: str) -> str:
    return next((theirs for theirs, each in ACTIVATIONS.items() if each == ours), default)


class Settings:
    """The keys of a config.json, each to be asked for."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = data
        self.where = where
        self.asked: set[str] = set()
        self.ignored: list[str] = []  # keys that the reference implementation does not read

    def whole(self, name: str, most: int, default: int | None = None) -> int:
        """A whole number from 1 to `most`; without a default it must be there."""
        value = self._value(name, default)
        if type(value) is not int or not 1 <= value <= most:
            self.refuse(name, value, f"it must be a whole number from 1 to {most:,}")
        return value

    def number(self, name: str, default: float, low: float = 0.0, high: float = 1.0) -> float:
        value = self._value(name, default)
        if type(value) not in (int, float) or not low <= value <= high:
            self.refuse(name, value, f"it must be a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            self.refuse(name, value, "it must be true or false")
        return value

    def choice(self, name: str, choices: Mapping[str, Value], default: str) -> Value:
        value = self._value(name, default)
        if not isinstance(value, str) or value not in choices:
            self.refuse(name, value, f"clearformer computes {', '.join(choices)}")
        return choices[value]

    def only(self, name: str, *accepted: Any) -> None:
        """A key that may be absent or as we compute it, and in no other way."""
        value = self._value(name, None)
        if value is not None and value not in accepted:
            known = ", ".join(map(repr, accepted)) or "none of it"
            self.refuse(name, value, f"clearformer computes {known}")

    def rename(self, other: str, name: str) -> None:
        """`other` is a second name of a key: it may stand alone, or say the same."""
        given, own = self.anything(other), self.data.get(name)
        if given is not None and own is not None and given != own:
            self.refuse(other, given, f"{name} says {own!r:.60}: they are one setting")
        if own is None and given is not None:
            self.data = {**self.data, name: given}

    def anything(self, name: str) -> Any:
        return self._value(name, None)

    def close(self, harmless: Collection[str] = ()) -> None:
        """Refuse what may stand there in one way only; note what nobody asked for."""
        for name, accepted in NEUTRAL.items():
            if name not in self.asked and name not in harmless:
                self.only(name, *accepted)
        known = self.asked | HARMLESS | generation_defaults.NAMES | set(harmless)
        self.ignored = [
            name for name, value in self.data.items() if name not in known and value is not None
        ]

    def refuse(self, name: str, value: Any, wanted: str) -> None:
        raise ValueError(f"{self.where}: {name} is {value!r:.60}, but {wanted}")

    def _value(self, name: str, default: Any) -> Any:
        self.asked.add(name)
        value = self.data.get(name)
        if value is None and default is None:
            return None
        return default if value is None else value
