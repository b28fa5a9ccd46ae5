"""The page of the output projection's ablation, from benchmarks/results/output_projection.jsonl.

    python benchmarks/output_projection_page.py     write docs/output-projection.md and its picture

A variant is compared with the model that has W_o and narrow heads, seed by seed. The rule: worse,
if the 95 % interval of the mean difference (Student's t) lies above 0; better, if below; otherwise
no difference is seen. Cells with fewer than three seeds are left out.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from claim import NOT_TRIED, Judged, Names, verdict
from matplotlib.figure import Figure
from output_projection import (
    CORPORA,
    SEEDS,
    SHAPES,
    SIZES,
    VARIANTS,
    Record,
    cells,
    find,
    rate,
    read,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs/output-projection.md", ROOT / "docs/output-projection.svg"
T_95 = {3: 4.303, 4: 3.182, 5: 2.776}  # Student's t for so many differences


@dataclass(frozen=True)
class Compared:
    """A variant and the same model `with` W_o and shared heads, paired by seed."""

    corpus: str
    size: str
    variant: str
    budget: str  # "steps" or "time"
    losses: tuple[float, ...]  # of the variant: bits per byte, or nats for a text
    accuracies: tuple[float, ...]
    differences: tuple[float, ...]  # of the losses: above 0, the variant is worse

    @property
    def mean(self) -> float:
        return statistics.mean(self.differences)

    @property
    def half(self) -> float:
        """Half of the 95 % interval of the mean difference, by Student's t."""
        count = len(self.differences)
        return T_95[count] * statistics.stdev(self.differences) / math.sqrt(count)

    @property
    def verdict(self) -> str:
        """The rule: the interval lies above 0, below 0, or holds it."""
        if self.mean - self.half > 0:
            return "worse"
        return "better" if self.mean + self.half < 0 else "no difference seen"


def of_seeds(
    records: Sequence[Record], corpus: str, size: str, name: str, budget: str
) -> dict[int, tuple[float, float]]:
    """Loss and accuracy of each seed; on enwik8 the loss is in bits per byte."""
    unit = math.log(2) if corpus == "enwik8" else 1.0
    wanted = ("run", corpus, size, name)
    return {
        record["seed"]: (record[budget]["loss"] / unit, record[budget]["accuracy"])
        for record in records
        if tuple(record.get(key) for key in ("kind", "corpus", "size", "variant")) == wanted
    }


def compare(records: Sequence[Record]) -> list[Compared]:
    """Every variant against `with`, where at least three seeds are there."""
    found = []
    for corpus, size, name, _ in cells([0]):
        reference = of_seeds(records, corpus, size, "with", "steps")
        for budget in ("steps", "time") if name != "with" else ("steps",):
            own = of_seeds(records, corpus, size, name, budget)
            seeds = sorted(reference.keys() & own.keys())
            if len(seeds) not in T_95:
                continue
            losses, accuracies = zip(*(own[seed] for seed in seeds), strict=True)
            less = tuple(own[seed][0] - reference[seed][0] for seed in seeds)
            found.append(Compared(corpus, size, name, budget, losses, accuracies, less))
    return found


def spread(numbers: Sequence[float], digits: int) -> str:
    return f"{statistics.mean(numbers):.{digits}f} ± {statistics.stdev(numbers):.{digits}f}"


HEADER = (
    "| corpus | size | variant | parameters | time of a step | measured at | seeds | loss "
    "| accuracy, % | less `with` | verdict |"
)


def table(records: Sequence[Record], names: Sequence[str], sizes: Sequence[str] = ()) -> str:
    """The variants of these names as a table in Markdown."""
    lines = [HEADER, "|---" * HEADER.count(" | ") + "|---|"]
    lines += [
        row(records, each)
        for each in compare(records)
        if each.variant in names and (not sizes or each.size in sizes)
    ]
    return "\n".join(lines)


def row(records: Sequence[Record], each: Compared) -> str:
    key = {"corpus": each.corpus, "size": each.size, "variant": each.variant}
    timed, run = find(records, kind="time", **key), find(records, kind="run", **key)
    assert run is not None
    is_reference = each.variant == "with"
    fields = (
        each.corpus,
        each.size,
        each.variant,
        f"{run['parameters']:,}",
        f"{1 / timed['ratio']:.2f}" if timed else "1",
        f"equal {each.budget}, step {run[each.budget]['step']}",
        str(len(each.losses)),
        spread(each.losses, 3),
        spread([100 * share for share in each.accuracies], 1),
        "" if is_reference else f"{each.mean:+.3f} ± {each.half:.3f}",
        "" if is_reference else each.verdict,
    )
    return f"| {' | '.join(fields)} |"


def figure(records: Sequence[Record]) -> Figure:
    """Differences without W_o: a point for each seed, a bar for the 95 % interval."""
    drawing = Figure(figsize=(9, 3.4), layout="constrained")
    panels = drawing.subplots(1, 2)
    for axes, corpus in zip(panels, CORPORA, strict=True):
        compared = [
            each
            for each in compare(records)
            if each.corpus == corpus and each.variant in ("without", "refilled")
        ]
        for place, each in enumerate(compared):
            colour = "tab:blue" if each.variant == "without" else "tab:orange"
            axes.plot([place] * len(each.differences), each.differences, "o", ms=3, color=colour)
            axes.errorbar(place, each.mean, each.half, fmt="_", color=colour, capsize=4)
        axes.axhline(0, color="0.6", linewidth=1)
        labels = [f"{each.size}\n{each.variant}\n{each.budget}" for each in compared]
        axes.set_xticks(range(len(labels)), labels, fontsize=5)
        axes.set(title=f"{corpus}: loss without W_o, less with it", ylabel=UNITS[corpus])
    return drawing


# --- at equal learning rates ---------------------------------------------------------------

EQUAL_RATES = """\
enwik8, 800 steps, each variant also at the rate that is the other's best. Three seeds, so intervals
are wide."""


def at_equal_rates(records: Sequence[Record]) -> list[tuple[float, tuple[float, ...], Compared]]:
    """On enwik8, at the rate of either: the rate, losses with W_o, and `without` compared."""
    found = []
    for size in SIZES:
        for chosen in sorted({rate(records, "enwik8", name) or 0.0 for name in VARIANTS[:2]}):
            both = [at_rate(records, size, name, chosen) for name in VARIANTS[:2]]
            seeds = sorted(both[0].keys() & both[1].keys())
            if len(seeds) in T_95:
                with_it, without = (tuple(each[seed] for seed in seeds) for each in both)
                less = tuple(b - a for a, b in zip(with_it, without, strict=True))
                compared = Compared("enwik8", size, "without", "steps", without, (), less)
                found.append((chosen, with_it, compared))
    return found


def same_rates(records: Sequence[Record]) -> str:
    """Without W_o less with it, at equal learning rates, as a table."""
    lines = [
        "| size | learning rate | seeds | with, bits per byte | without | difference | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for chosen, with_it, each in at_equal_rates(records):
        losses = (spread(with_it, 3), spread(each.losses, 3))
        difference = f"{each.mean:+.3f} ± {each.half:.3f}"
        fields = (each.size, f"{chosen:g}", str(len(with_it)), *losses, difference, each.verdict)
        lines.append(f"| {' | '.join(fields)} |")
    return "\n".join(lines)


def equal_rates_in_words(records: Sequence[Record]) -> str:
    found = Counter(each.verdict for _, _, each in at_equal_rates(records))
    return (
        f"at equal learning rates (enwik8, equal steps, 3 seeds) worse in {found['worse']} of "
        f"{found.total()} cells, better in {found['better']}"
    )


def at_rate(records: Sequence[Record], size: str, name: str, chosen: float) -> dict[int, float]:
    """Bits per byte of each seed at this learning rate, after equal steps."""
    wanted = ("enwik8", size, name, chosen)
    return {
        record["seed"]: record.get("steps", record)["loss"] / math.log(2)
        for record in records
        if tuple(record.get(key) for key in ("corpus", "size", "variant", "rate")) == wanted
    }


# --- verdicts ------------------------------------------------------------------------------


def verdicts(compared: Sequence[Compared], name: str, budget: str) -> str:
    """How often a variant is worse, better or neither: "worse in 1 of 6, better in 0"."""
    found = Counter(e.verdict for e in compared if (e.variant, e.budget) == (name, budget))
    total = sum(found.values())
    return f"worse in {found['worse']} of {total} cells, better in {found['better']}"


UNITS = {"enwik8": "bits per byte", "imdb": "nats"}


def differences(compared: Sequence[Compared], name: str, budget: str) -> str:
    """Mean and standard deviation of a variant's differences, over all sizes and seeds."""
    parts = []
    for corpus, unit in UNITS.items():
        found = [
            difference
            for each in compared
            if (each.corpus, each.variant, each.budget) == (corpus, name, budget)
            for difference in each.differences
        ]
        mean, deviation = statistics.mean(found), statistics.stdev(found)
        parts.append(f"{corpus} {mean:+.3f} ± {deviation:.3f} {unit}")
    return ", ".join(parts)


def in_words(records: Sequence[Record]) -> str:
    """What came out, in plain words: the answer, and each corpus and size."""
    judged = [each for each in compare(records) if each.variant in VARIANTS[1:]]
    found = Counter(each.verdict for each in judged)
    answers = {
        (False, False): "No difference is seen: $W_o$ can be removed here.",
        (False, True): "$W_o$ can be removed here, and often should be.",
        (True, False): "Some of these models need $W_o$.",
        (True, True): "It depends on the model: some are better without $W_o$, some are worse.",
    }
    answer = answers[found["worse"] > 0, found["better"] > 0]
    rates = {name: rate(records, "enwik8", name) for name in VARIANTS[:2]}
    lines = [f"**{answer}** So it is with the best learning rate of each."]
    control = Counter(each.verdict for _, _, each in at_equal_rates(records))
    if control:
        is_rate = found["worse"] and not control["worse"]
        words = " So the learning rate, not $W_o$, explains the worse cells." if is_rate else ""
        lines.append(
            f"**At equal learning rates** (enwik8; the best ones are {rates['with']} with and "
            f"{rates['without']} without) it is worse without $W_o$ in {control['worse']} of "
            f"{control.total()} cells, better in {control['better']}, and no difference is seen in "
            f"{control['no difference seen']}.{words}"
        )
    lines += ["", "Four comparisons each (two variants, two budgets), at the best rates:", ""]
    for corpus, size in dict.fromkeys((each.corpus, each.size) for each in judged):
        cell = Counter(e.verdict for e in judged if (e.corpus, e.size) == (corpus, size))
        counts = ", ".join(f"{name} in {count}" for name, count in cell.most_common())
        lines.append(f"- {corpus}, {size}: {counts}")
    return "\n".join(lines)


def complete(compared: Sequence[Compared]) -> bool:
    """Whether every cell of the question about W_o has all its seeds."""
    asked = [each for each in compared if each.variant in VARIANTS[1:]]
    wanted = 2 * len(CORPORA) * len(VARIANTS[1:]) * 3  # two budgets, three sizes
    return len(asked) == wanted and all(len(each.losses) == len(SEEDS) for each in asked)


def not_necessary(names: Names) -> Judged:
    """The claim of the first seed that W_o may not be strictly necessary."""
    compared = compare(read())
    if not complete(compared):
        runs = sum(record["kind"] == "run" for record in read())
        return f"begun: {runs} runs of the ablation are stored, too few to judge", NOT_TRIED
    names_of = {"without": "without it", "refilled": "with its parameters elsewhere"}
    result = "; ".join(
        f"{words}, equal {budget}: {verdicts(compared, name, budget)} "
        f"({differences(compared, name, budget)})"
        for name, words in names_of.items()
        for budget in ("steps", "time")
    )
    judged = [each for each in compared if each.variant in VARIANTS[1:]]
    return (
        f"small models, 3 sizes, 5 seeds, loss less that with it: {result}; "
        f"{equal_rates_in_words(read())}",
        verdict(*(each.verdict != "worse" for each in judged)),
    )


INTRODUCTION = """\
# Can the output projection be removed?

*Written by `python benchmarks/output_projection_page.py` from the runs of `python
benchmarks/output_projection.py`.*

The post on $W_o$, the matrix after the merged heads: "In most transformers, the first thing that
happens after each self attention is a feed-forward layer, so this may not be strictly necessary.
I've never seen a proper ablation to test whether $W_o$ can be removed."

The models are the post's (post-norm blocks, ReLU, torch's initial weights) with rotary positions
and heads 16 wide, trained on the bytes of enwik8 and on the words of IMDb: 2 layers of width 32,
2 of 64, 3 of 96; 800 and 300 steps of AdamW. They are small and trained briefly, on one core:
whether a large model needs $W_o$ is not tried here. Losses are bits per byte on 64 KB of enwik8's
validation part, and nats on a fifth of half of the official IMDb test (2,500 texts).

| variant | |
|---|---|
| `with` | heads that share the width, then $W_o$ |
| `without` | the merged heads as they are: fewer parameters, less time |
| `refilled` | without $W_o$, its parameters given to the feed-forward layers: equal parameters |

At *equal steps* all are measured after as many steps; at *equal time* a variant takes as many
steps as fit into the CPU time of all steps of `with`. Times of a step were compared in turns in
one process. The learning rate of each variant is the best of three or four, found on other data
with another seed, in the medium size. Losses are mean ± standard deviation over the seeds; *less
`with`* is the mean difference seed by seed ± half of its 95 % interval (Student's t). **The
rule:** worse if the interval lies above 0, better if it lies below, otherwise no difference is
seen.

"""


CAVEAT = """\
The learning rate was tuned in the medium size alone, and a rate that is too high for a larger model
looks like a missing $W_o$: hence the comparison at equal rates. Models of this size say nothing
about large ones."""


def page(records: Sequence[Record]) -> str:
    """The whole page."""
    compared = compare(records)
    runs = sum(record["kind"] == "run" for record in records)
    parts = [INTRODUCTION]
    if not complete(compared):
        parts.append(
            f"**Not finished**: {runs} of {len(list(cells(list(SEEDS))))} runs are stored. Cells "
            f"with fewer than three seeds are left out, and the ledger has no verdict yet.\n\n"
        )
    if any(each.variant in VARIANTS[1:] for each in compared):
        listed = "\n".join(
            f"- `{name}`, equal {budget}: {differences(compared, name, budget)}; "
            f"{verdicts(compared, name, budget)}."
            for name in VARIANTS[1:]
            for budget in ("steps", "time")
        )
        parts.append(
            f"## Verdict\n\n{in_words(records)}\n\nThe mean difference over all sizes and seeds ± "
            f"its standard deviation (below 0: better without $W_o$; sizes that differ in sign are "
            f"averaged here):\n\n{listed}\n\n{CAVEAT}\n\n"
        )
        parts.append(f"![differences of every seed]({PICTURE.name})\n\n")
        parts.append(f"## At equal learning rates\n\n{EQUAL_RATES}\n\n{same_rates(records)}\n\n")
        parts.append(f"## Every cell\n\n{table(records, VARIANTS)}\n\n")
    parts.append(
        "## Narrow, wide, one\n\nThe medium size. `one` is one head as wide as the model; each of "
        "the `wide` heads is as wide as the model. *Time of a step* is relative to narrow heads, "
        "`with`.\n\n"
    )
    if any(each.variant in SHAPES for each in compared):
        parts.append(f"{table(records, ('with', *SHAPES), ['medium'])}\n")
    else:
        parts.append(f"{costs(records)}\n\nThe losses are not finished.\n")
    return "".join(parts)


def costs(records: Sequence[Record]) -> str:
    """Time of a step of other heads, which needs no training."""
    lines = ["| corpus | heads | time of a step |", "|---|---|---|"]
    for corpus in CORPORA:
        for name in SHAPES:
            timed = find(records, kind="time", corpus=corpus, size="medium", variant=name)
            if timed is not None:
                lines.append(f"| {corpus} | {name} | {1 / timed['ratio']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    records = read()
    PAGE.write_text(page(records), encoding="utf-8")
    figure(records).savefig(PICTURE, metadata={"Date": None})
    print(page(records))


if __name__ == "__main__":
    main()
