"""Claims about self-attention, its scaling, heads and blocks: chapters 1 to 5 (see claims.py)."""

from claim import Claim, Judged, Names, verdict
from output_projection_page import not_necessary

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
)  # fmt: skip
