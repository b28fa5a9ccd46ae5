"""A config.json read key by key: what is not understood is refused, and nothing is ignored by
accident.

Every key is asked for once; `close` refuses the ones nobody asked for, unless they are known to
change nothing that is computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from clearformer.hub import wishes

Value = TypeVar("Value")

# What may stand in any config.json without changing an output: where it came from, what to return
# beside the output, how to start training; and how to write, of which the user is told.
HARMLESS = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path architectures
    bos_token_id decoder_start_token_id diversity_penalty dtype eos_token_id finetuning_task
    gradient_checkpointing initializer_range max_length model_type num_return_sequences
    output_attentions output_hidden_states output_past output_scores pad_token_id prefix
    remove_invalid_values return_dict return_dict_in_generate sep_token_id task_specific_params
    tf_legacy_loss tokenizer_class torch_dtype torchscript transformers_version use_bfloat16
    use_cache
    """.split()  # noqa: SIM905
)
# What may stand there only in this way.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "chunk_size_feed_forward": (0,),  # cuts the work, not the result
    "cross_attention_hidden_size": (),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "problem_type": ("single_label_classification",),
    "pruned_heads": ({},),
    "tie_encoder_decoder": (False,),
}


class Settings:
    """The keys of a config.json, each to be asked for."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = data
        self.where = where
        self.asked: set[str] = set()

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

    def anything(self, name: str) -> Any:
        return self._value(name, None)

    def close(self, harmless: Collection[str] = ()) -> None:
        """Nothing may be left that could mean something."""
        for name, accepted in NEUTRAL.items():
            if name not in self.asked:
                self.only(name, *accepted)
        for name, value in self.data.items():
            known = name in self.asked or name in HARMLESS | wishes.NAMES or name in harmless
            if not known and value is not None:
                shown = name if name.isidentifier() else repr(name[:60])
                raise ValueError(
                    f"{self.where} sets {shown} to {value!r:.60}, which clearformer does not "
                    f"understand: ignoring it could give other numbers than its maker's"
                )

    def refuse(self, name: str, value: Any, wanted: str) -> None:
        raise ValueError(f"{self.where}: {name} is {value!r:.60}, but {wanted}")

    def _value(self, name: str, default: Any) -> Any:
        self.asked.add(name)
        value = self.data.get(name)
        if value is None and default is None:
            return None
        return default if value is None else value
