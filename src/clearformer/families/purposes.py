"""What each preset is for, and which ones suit a wish in plain words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clearformer.config import AnyModelConfig
from clearformer.families import preset, presets

# By preset, or by family for all its other sizes.
PURPOSES = {
    "classifier-imdb": "classify texts: six layers over words, the classifier of the first text",
    "classifier-pairs": "classify tens of thousands of texts: one layer over words and word pairs",
    "classifier-ngrams": "classify texts: word pairs by naive Bayes, and one layer over words",
    "classifier-small": "classify a few thousand texts: one layer over words and word pairs",
    "bert-tiny": "fill masked words, then fine-tune with `train classify --from`; minutes on a CPU",
    "bert-tiny-masked": "fill masked words without next-sentence prediction; minutes on a CPU",
    "bert-mini-masked": "fill masked words, then fine-tune; an hour on a CPU",
    "gpt2-small": "write text over word pieces, as GPT-2; needs a GPU or GPT-2's weights",
    "modern-tiny": "write text: today's usual design over bytes; minutes on a CPU",
    "modern-small": "write text: today's usual design over bytes; half an hour on a CPU",
    "xl-small": "write long texts with a memory of earlier segments; half an hour on a CPU",
    "xl-tiny": "write long texts with a memory of earlier segments; minutes on a CPU",
    "sparse-16k": "read 16,384 tokens at once with a sparse pattern",
    "sparse-small": "write long texts with sparse attention; minutes on a CPU",
    "original-tiny": "translate, or turn one sequence into another; minutes on a CPU",
    "original-small": "translate, or turn one sequence into another; an hour on a CPU",
    "classifier": "classify texts",
    "generator": "write text: the generator of the first text",
    "original": "translate, or turn one sequence into another: the original encoder-decoder",
    "bert": "fill masked words, embed, then fine-tune: BERT",
    "gpt2": "write text over word pieces: GPT-2",
    "xl": "write long texts with a memory: Transformer-XL",
    "sparse": "read long sequences: Sparse Transformers",
    "modern": "write text: today's usual design over bytes",
}
# Words of a wish, by the verb that answers it.
WISHES = {
    "classify": (
        r"classif|categor|label|sentiment|topic|spam|tag|sort|intent|ticket|review|detect|predict|"
        r"regress|pric|rating|score|estimat"
    ),
    "translate": r"translat|sequence to sequence|seq2seq|summar|pairs|transliterat|convert",
    "fill": r"fill|mask|embed|vector|similar|search|pretrain|encoder|fine-?tun",
    "generate": r"writ|generat|continu|complet|stor|chat|language model|poem|code|next token",
}
TASKS = {  # of those that classify, by what else is wanted
    "regression": r"regress|pric|rating|score|estimat|number",
    "multi-label": r"multi-?label|several labels|tags",
}
SHORT = r"short|tweet|message|headline|title|quer"
LONG = r"long|book|document|memory|16k|context"
# Parameters that one core trains well in a minute: measured orders of magnitude, not a promise.
PARAMETERS_PER_CORE_MINUTE = 60_000
DEFAULT_MINUTES, DEFAULT_CORES = 10.0, 2
BEST = (
    "classifier-small",
    "classifier-pairs",
    "classifier-ngrams",
)  # better on IMDb than the others (docs/results.md)


@dataclass(frozen=True)
class Wish:
    """What somebody wants, read from plain words."""

    verb: str
    minutes: float
    cores: int
    long: bool
    short: bool = False
    task: str | None = None  # of a model that classifies; None: classes

    @property
    def parameters(self) -> float:
        """The size of a model that the time suits."""
        return PARAMETERS_PER_CORE_MINUTE * self.minutes * self.cores


def purpose(name: str) -> str:
    """What a preset is for."""
    return PURPOSES.get(name) or PURPOSES[name.partition("-")[0]]


def read_wish(text: str) -> Wish:
    """A wish from words such as "classify short texts, 2 cores, 10 minutes"."""
    lowered = text.casefold()
    verbs = [verb for verb, pattern in WISHES.items() if re.search(pattern, lowered)]
    if not verbs:
        raise ValueError(
            f"{text!r:.60} names no task: say classify, generate, translate or fill, such as "
            f"--for 'classify short texts, 2 cores, 10 minutes'"
        )
    minutes = DEFAULT_MINUTES
    if found := re.search(r"([\d.]+)\s*(h|hour|min|day|m\b)", lowered):
        unit = {"h": 60, "d": 1440}.get(found[2][0], 1)
        minutes = float(found[1].strip(".") or DEFAULT_MINUTES) * unit
    cores = re.search(r"(\d+)\s*(?:cpu )?(?:core|cpu|thread)", lowered)
    is_short = bool(re.search(SHORT, lowered))
    is_long = bool(re.search(LONG, lowered)) and not is_short
    tasks = [task for task, pattern in TASKS.items() if re.search(pattern, lowered)]
    return Wish(
        verbs[0],
        minutes,
        int(cores[1]) if cores else DEFAULT_CORES,
        is_long,
        is_short,
        tasks[0] if tasks and verbs[0] == "classify" else None,
    )


def suitable(wish: Wish, parameters: dict[str, int], count: int = 3) -> list[str]:
    """The presets that answer a wish, the best first.

    `parameters` are those of each preset without tables of tokens, which cost little time.
    """

    def misfit(name: str) -> tuple[bool, bool, float]:
        long = name.startswith(("xl", "sparse"))
        size = parameters[name] / max(wish.parameters, 1.0)
        # Too large a model learns nothing in the time; too small a one only learns less.
        distance = size if size > 1 else 1 / max(size, 1e-9) / 4
        return long != wish.long, name not in BEST, distance

    known = [name for name in presets() if _answers(preset(name), wish.verb)]
    return sorted(known, key=misfit)[:count]


def _answers(config: AnyModelConfig, verb: str) -> bool:
    return config.verbs[0] == verb
