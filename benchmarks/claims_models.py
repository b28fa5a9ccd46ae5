"""Claims about the models after the block: chapters 10 to 16 of docs/book (see claims.py)."""

from claim import REFUTED, Claim, Judged, Names, not_tried, span, verdict

# --- chapter 10 ----------------------------------------------------------------------------


def forcing_helps(names: Names) -> Judged:
    right, alone = (
        [each[0] for each in names["samples"][kind]]
        for kind in ("encoder-decoder", "without its own words")
    )
    result = (
        f"4 ways to say it, 3 seeds: two samples both mean the source in {span(right, '.0%')} of "
        f"new sentences; without its own words in {span(alone, '.0%')}"
    )
    return result, verdict(min(right) > 0.5 and max(alone) < 0.25)


def two_samples(names: Names) -> Judged:
    right, differ, _ = zip(*names["samples"]["encoder-decoder"], strict=True)
    result = (
        f"3 seeds: two samples differ in {span(differ, '.0%')}, and both mean the source in "
        f"{span(right, '.0%')}"
    )
    return result, verdict(min(differ) > 0.5, min(right) > 0.5)


def one_stack_suffices(names: Names) -> Judged:
    one, two = (
        [each[0] for each in names["samples"][kind]]
        for kind in ("a single stack", "encoder-decoder")
    )
    result = (
        f"a single stack with fewer weights, 3 seeds: {span(one, '.0%')} right, the "
        f"encoder-decoder {span(two, '.0%')}"
    )
    return result, verdict(min(one) > 0.5)


def parallel_training(names: Names) -> Judged:
    return f"one pass and six passes differ by {names['in_parallel']:.0e}", verdict(
        names["in_parallel"] <= 1e-7
    )


def two_variables(names: Names) -> Judged:
    return f"the second seed's class with two inputs differs from ours by {names['difference']:.0e}", (
        verdict(names["difference"] <= 1e-7)
    )


ORIGINAL = "The original transformer: encoders and decoders"
CLAIMS: tuple[Claim, ...] = (
    Claim(
        10, "[teacher forcing] takes some of the pressure off the latent representation", ORIGINAL,
        forcing_helps,
    ),
    Claim(
        10, "decoding twice [...] would, ideally, give you two different sentences with the same "
        "meaning", ORIGINAL, two_samples,
    ),
    Claim(
        10, "a simple stack of transformer blocks was found to be sufficient", ORIGINAL,
        one_stack_suffices,
    ),
    Claim(
        10, "auto-regressive training, but in parallel, with no need to iterate",
        "second seed, Transformer types", parallel_training,
    ),
    Claim(
        10, "we need to pass at least 2 different variables as input to the forward method",
        "second seed, Efficient multi-head attention", two_variables,
    ),
)  # fmt: skip
