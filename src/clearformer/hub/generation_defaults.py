"""How the makers of a checkpoint write with it: told, never followed unasked.

transformers writes by these settings without a word, so whoever compares texts, or wonders why
they differ, has to know of them. What there is a flag for is told as that flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Each with the values that wish for nothing, and the flag that does the same.
WISHES: Mapping[str, tuple[tuple[Any, ...], str | None]] = {
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
# What counts only where tokens are drawn.
DRAWN: Mapping[str, tuple[tuple[Any, ...], str | None]] = {
    "temperature": ((), "--temperature"),
    "top_k": ((0,), "--top-k"),
    "top_p": ((1,), "--top-p"),
    "min_p": ((0,), "--min-p"),
    "typical_p": ((1,), "--typical-p"),
    "epsilon_cutoff": ((0,), None),
    "eta_cutoff": ((0,), None),
}
NAMES = frozenset({*WISHES, *DRAWN, "do_sample"})


def notes(
    data: Mapping[str, Any], verb: str = "write", followed: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """What is asked for, but for what is `followed`: in flags, then in their own words."""
    known = {**WISHES, **(DRAWN if data.get("do_sample") is True else {})}
    flags, words = [], []
    for name, (neutral, flag) in known.items():
        value = data.get(name)
        if value is None or value in neutral or name in followed:
            continue
        if flag is not None and type(value) in (int, float):
            flags.append(f"{flag} {value}")
        else:
            words.append(f"{name}={value!r:.20}")
    found = [f"its makers {verb} with {' '.join(flags)}"] if flags else []
    if words:
        found.append(f"its makers also ask for {', '.join(words)}, which is not done")
    return tuple(found)
