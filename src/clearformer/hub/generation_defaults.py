"""Reports a checkpoint's generation defaults without applying them.

transformers applies the settings of generation_config.json silently, so outputs may differ. A
setting that has a flag here is reported as that flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Each with its neutral values, and the equivalent flag.
DEFAULTS: Mapping[str, tuple[tuple[Any, ...], str | None]] = {
    "num_beams": ((1,), "--beam"),
    "length_penalty": ((1,), "--length-penalty"),
    "repetition_penalty": ((1,), "--repetition-penalty"),
    "max_new_tokens": ((), "--max-tokens"),
    "min_new_tokens": ((0,), "--min-tokens"),
    "bad_words_ids": (([],), None),
    "begin_suppress_tokens": (([],), None),
    "early_stopping": ((False,), None),
    "encoder_no_repeat_ngram_size": ((0,), None),
    "encoder_repetition_penalty": ((1,), None),
    "exponential_decay_length_penalty": ((), None),
    "forced_bos_token_id": ((), None),
    "forced_eos_token_id": ((), None),
    "guidance_scale": ((1,), None),
    "min_length": ((0,), None),
    "no_repeat_ngram_size": ((0,), None),
    "num_beam_groups": ((1,), None),
    "penalty_alpha": ((0,), None),
    "renormalize_logits": ((False,), None),
    "sequence_bias": (({}, []), None),
    "suppress_tokens": (([],), None),
}
# Settings that matter only with sampling.
SAMPLING_DEFAULTS: Mapping[str, tuple[tuple[Any, ...], str | None]] = {
    "temperature": ((), "--temperature"),
    "top_k": ((0,), "--top-k"),
    "top_p": ((1,), "--top-p"),
    "min_p": ((0,), "--min-p"),
    "typical_p": ((1,), "--typical-p"),
    "epsilon_cutoff": ((0,), None),
    "eta_cutoff": ((0,), None),
}
NAMES = frozenset({*DEFAULTS, *SAMPLING_DEFAULTS, "do_sample"})


def notes(data: Mapping[str, Any], followed: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The settings that are on, except those `followed`: as flags, then the ones without a flag."""
    known = {**DEFAULTS, **(SAMPLING_DEFAULTS if data.get("do_sample") is True else {})}
    flags, others = [], []
    for name, (neutral, flag) in known.items():
        value = data.get(name)
        if value is None or value in neutral or name in followed:
            continue
        if flag is not None and type(value) in (int, float):
            flags.append(f"{flag} {value}")
        else:
            others.append(f"{name}={value!r:.20}")
    sentences = [f"its generation config asks for {' '.join(flags)}"] if flags else []
    if others:
        sentences.append(
            f"its generation config also sets {', '.join(others)}, which clearformer does not apply"
        )
    return tuple(sentences)
