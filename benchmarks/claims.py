"""The ledger of claims: claims of the first source document, tested in the chapters of docs/book.

    python benchmarks/claims.py          run every chapter and write docs/claims.md
    python benchmarks/claims.py 3        run chapter 3 and print its claims

Each claim is judged by a rule from the numbers that its chapter computes. Needs jupytext (the extra
`docs`). Times are those of the machine that runs it.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from claim import Claim, Judged, Names, verdict
from claims_models import CLAIMS as MODELS
from claims_tasks import CLAIMS as TASKS
from output_projection_page import not_necessary

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "claims.md"


# --- chapter 1 -----------------------------------------------------------------------------


def two_products(names: Names) -> Judged:
    return f"differs from the loop by {names['difference']:.0e}", verdict(
        names["difference"] <= 1e-7
    )


def loops_are_slow(names: Names) -> Judged:
    return f"{names['slower']:,.0f} times as slow with 64 tokens", verdict(names["slower"] >= 10)


# --- chapter 2 -----------------------------------------------------------------------------


def features_are_meaningful(names: Names) -> Judged:
    errors, constants, explained = zip(*names["factorizations"], strict=True)
    result = (
        f"made data, 3 seeds: learned features explain {min(explained):.1%} to "
        f"{max(explained):.1%} of the true ones, up to a linear map; error {max(errors):.2f} "
        f"(noise 0.30, constant {min(constants):.2f})"
    )
    return result, verdict(min(explained) >= 0.9)


def the_is_low(names: Names) -> Judged:
    found = names["word_products"]
    verbs = [each["the, verbs"] for each in found]
    largest = [each["the, largest"] for each in found]
    result = (
        f"one task, 5 seeds: with verbs {min(verbs):.1f} to {max(verbs):.1f}; but with some word "
        f"{min(largest):.1f} to {max(largest):.1f}"
    )
    return result, verdict(max(verbs) < 0, max(largest) <= 0)


def nouns_and_verbs(names: Names) -> Judged:
    found = [each["nouns, verbs"] for each in names["word_products"]]
    others = [each["places, verbs"] for each in names["word_products"]]
    result = (
        f"5 seeds: {min(found):.1f} to {max(found):.1f}, places with verbs {min(others):.1f} to "
        f"{max(others):.1f}"
    )
    return result, verdict(min(found) > 0 > max(others))


def equivariant(names: Names) -> Judged:
    return f"f(Px) and P f(x) differ by {names['shuffled']:.0e}", verdict(names["shuffled"] <= 1e-7)


# --- chapter 3 -----------------------------------------------------------------------------


def average_grows(names: Names) -> Judged:
    (_, first), (_, last) = names["spread"][0], names["spread"][-1]
    # In units of the spread, so that chance alone stays well below one.
    mean = max(abs(mean) / std for mean, std in names["spread"])
    result = (
        f"numbers of mean 0: the standard deviation grows from {first:.0f} at width 4 to "
        f"{last:.0f} at 4096, as the root of the width; the average stays at 0 (at most {mean:.2f} "
        f"standard deviations)"
    )
    return result, verdict(last > 8 * first, mean > 0.5)


def gradient_dies(names: Names) -> Judged:
    unscaled, scaled = names["unscaled"], names["scaled"]
    result = (
        f"width 4 to 4096: {unscaled[0]:.2f} to {unscaled[-1]:.0e} unscaled, {min(scaled):.2f} to "
        f"{max(scaled):.2f} scaled"
    )
    return result, verdict(unscaled[-1] < 1e-3 * unscaled[0], min(scaled) > 0.5 * max(scaled))


def learning_stops(names: Names) -> Judged:
    unscaled, scaled = names["final_losses"]["unscaled"], names["final_losses"]["scaled"]
    result = (
        f"one lookup task, width 64, best of 3 learning rates, 3 seeds: loss {min(unscaled):.2f} "
        f"to {max(unscaled):.2f} unscaled (chance 0.94), at most {max(scaled):.3f} scaled"
    )
    return result, verdict(min(unscaled) > 10 * max(scaled))


# --- chapter 4 -----------------------------------------------------------------------------


def wide_is_slow(names: Names) -> Judged:
    costs = names["head_costs"]
    ratio = costs["4 wide heads"][2] / costs["one head"][2]
    return f"4 wide heads take {ratio:.1f} times as long as one", verdict(3 <= ratio <= 5.5)


def narrow_is_fast(names: Names) -> Judged:
    costs = names["head_costs"]
    ratio = costs["4 narrow heads"][2] / costs["one head"][2]
    return f"4 narrow heads take {ratio:.1f} times as long as one", verdict(ratio <= 1.5)


def same_parameters(names: Names) -> Judged:
    costs = names["head_costs"]
    narrow, one = costs["4 narrow heads"][0], costs["one head"][0]
    return f"{narrow:,} and {one:,} at width 256", verdict(narrow == one == 3 * 256**2)


def output_adds(names: Names) -> Judged:
    before, after, _ = names["head_costs"]["4 narrow heads"]
    return f"{after - before:,} at width 256", verdict(after - before == 256**2)


def not_in_different_ways(names: Names) -> Judged:
    solved = {
        heads: sum(min(right) > 0.95 for _, right, _ in runs)
        for heads, runs in names["giving"].items()
    }
    runs = len(names["giving"][1])
    averaged = sum(min(right) > 0.95 for right in names["averaged"][1])
    result = (
        f"who, what and whom all told apart: one head with {solved[1]} of {runs} seeds, four with "
        f"{solved[4]}; one head whose amounts do not depend on the words: {averaged}"
    )
    return result, verdict(solved[4] > solved[1] and averaged == 0, solved[1] == 0)


# --- chapter 5 -----------------------------------------------------------------------------


def only_attention_mixes(names: Names) -> Judged:
    leaks = names["leaks"]
    others = max(leaks["layer norm"], leaks["feed-forward"])
    result = (
        f"a changed token moves others by {leaks['attention']:.2f} in attention, by {others:.0f} "
        f"in norm and feed-forward"
    )
    return result, verdict(leaks["attention"] > 0 and others == 0)


def tricks_help(names: Names) -> Judged:
    last = {name: [float(x) for x in curve[:, -1]] for name, curve in names["curves"].items()}
    both, norm, residual = (
        last[name] for name in ("residual and norm", "norm only", "residual only")
    )
    result = (
        f"6 blocks, 150 steps, 3 seeds: loss {max(both):.3f} at most with both, {min(norm):.2f} at "
        f"least without residual connections, {max(residual):.3f} at most without norms"
    )
    return result, verdict(max(both) < 0.5 * min(norm), max(both) < min(residual))


BASIC, WHY = "In Pytorch: basic self-attention", "Understanding why self-attention works"
SCALE, HEADS, BLOCK = "Scaling the dot product", "Multi-head attention", "The transformer block"
CLAIMS = (
    Claim(
        1, "two matrix multiplications and one softmax gives us a basic self-attention", BASIC,
        two_products,
    ),
    Claim(
        1, "a naive implementation that loops over all vectors [...] would be much too slow", BASIC,
        loops_are_slow, timed=True,
    ),
    Claim(
        2, "after training the features do actually reflect meaningful semantics", WHY,
        features_are_meaningful,
    ),
    Claim(
        2, "an embedding v_the that has a low or negative dot product with all other words", WHY,
        the_is_low,
    ),
    Claim(
        2, "embeddings v_cat and v_walks that have a high, positive dot product together", WHY,
        nouns_and_verbs,
    ),
    Claim(2, "self-attention is permutation equivariant", WHY, equivariant),
    Claim(
        3, "the average value of the dot product grows with the embedding dimension k", SCALE,
        average_grows,
    ),
    Claim(3, "very large input values [...] kill the gradient", SCALE, gradient_dies),
    Claim(
        3, "and slow down learning, or cause it to stop altogether", SCALE, learning_stops,
    ),
    Claim(
        4, "can influence the output by different amounts [...] but [not] in different ways", HEADS,
        not_in_different_ways,
    ),
    Claim(
        4, "for R heads, the self-attention operation is R times as slow", HEADS, wide_is_slow,
        timed=True,
    ),
    Claim(
        4, "[with narrow heads] roughly as fast as the single-head version", HEADS, narrow_is_fast,
        timed=True,
    ),
    Claim(
        4, "3k² parameters [...]: the same as we had for the single-head self-attention", HEADS,
        same_parameters,
    ),
    Claim(4, "W_o [...] adds k² parameters", HEADS, output_adds),
    Claim(
        4, "[W_o] may not be strictly necessary. I've never seen a proper ablation", HEADS,
        not_necessary, command="python benchmarks/output_projection.py",
    ),
    Claim(
        5, "the only operation [...] that propagates information between vectors", "Self-attention",
        only_attention_mixes,
    ),
    Claim(
        5, "normalization and residual connections [...] help deep neural networks train faster",
        BLOCK, tricks_help,
    ),
    *TASKS,
    *MODELS,
)  # fmt: skip


def chapter_path(number: int) -> Path:
    (found,) = (ROOT / "docs" / "book").glob(f"{number}-*.md")
    return found


def run_chapter(number: int) -> dict[str, Any]:
    """Run the cells of a chapter, and return its variables."""
    import jupytext

    names: dict[str, Any] = {}
    path = chapter_path(number)
    for cell in jupytext.read(path, fmt="md:myst").cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, path.name, "exec"), names)
    return names


def row(claim: Claim, names: Names) -> str:
    """A tested claim as a row of the table."""
    result, judged = claim.judge(names)
    result = f"{result} (time on the machine that wrote this)" if claim.timed else result
    chapter = f"[{claim.chapter}](book/{chapter_path(claim.chapter).name})"
    command = f"`{claim.command or f'python benchmarks/claims.py {claim.chapter}'}`"
    cells = (f'"{claim.text}"', claim.place, chapter, command, result, judged, claim.since)
    return f"| {' | '.join(cells)} |"


HEADER = """\
# Claims of the seeds, tried

Sentences of *The Illustrated Transformer From Scratch* (and of *Transformers*, the second seed)
with a number or a comparison, and what came of trying them. `python benchmarks/claims.py` writes
the table: it runs the chapters of [the book](book/index.md) and judges each claim by a fixed rule
from the chapter's numbers. Verdicts: *holds*, *holds here in part*, *not here*, *refuted* (also in
the [errata](errata.md)), *could not be tried* (with the command for it). A verdict is about the
experiment of the chapter, small models on a CPU, and not about every model there is.

It covers the sections of the chapters that the table names.

| claim | section | chapter | command | result | verdict | since |
|---|---|---|---|---|---|---|
"""


def write_page(rows: list[str]) -> None:
    PAGE.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted({claim.chapter for claim in CLAIMS})
    parser.add_argument("chapter", type=int, nargs="?", choices=known)
    asked = parser.parse_args().chapter
    os.environ["MPLBACKEND"] = "agg"
    rows = []
    with tempfile.TemporaryDirectory() as progress:
        os.environ["XDG_DATA_HOME"] = progress  # the chapters' exercises are not the reader's
        for number in known if asked is None else [asked]:
            names = run_chapter(number)
            rows += [row(claim, names) for claim in CLAIMS if claim.chapter == number]
    if asked is None:
        write_page(rows)
    print("\n".join(rows))


if __name__ == "__main__":
    main()
