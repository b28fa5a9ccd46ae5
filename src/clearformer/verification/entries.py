"""The names of the bugs: severity, group, what each means, and what it explains.

Where one bug shows as several findings, the one that explains the others is reported.
"""

from __future__ import annotations

from dataclasses import dataclass

from clearformer.verification.findings import Finding, Place, Severity

E, W, N = Severity.ERROR, Severity.WARNING, Severity.INFO
# Symptoms: what many bugs look like from outside.
SYMPTOMS = (
    "future-leak", "future-leak-through-norm", "future-leak-through-pooling", "batch-coupling",
    "future-leak-through-batch", "padding-leak-left", "padding-leak-right", "mask-ignored",
    "mask-broadcast-wrong", "reach-too-short", "cache-differs", "permutation-equivariant",
    "mask-lost-on-slow-path", "padding-moves-positions", "positions-not-offset-in-cache",
    "cache-shared-between-rows", "nan-row", "rotary-pairs", "mask-inverted", "window-off-by-one",
    "causal-aligned-top-left",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One bug of the catalogue."""

    name: str
    severity: Severity
    group: str
    summary: str
    explains: tuple[str, ...] = ()


def _all_but(*names: str) -> tuple[str, ...]:
    return tuple(each for each in SYMPTOMS if each not in names)


ENTRIES = {
    entry.name: entry
    for entry in (
        # information flow
        Entry("future-leak", E, "information flow", "an output depends on later inputs", ("mask-lost-on-slow-path",)),
        Entry("future-leak-through-norm", E, "information flow", "a norm over time carries later inputs back", ("future-leak", "mask-lost-on-slow-path", "norm-over-time", "batch-coupling")),
        Entry("future-leak-through-pooling", E, "information flow", "a mean, sum or maximum over time carries later inputs back", ("future-leak", "mask-lost-on-slow-path")),
        Entry("future-leak-through-batch", E, "information flow", "statistics of the batch carry later inputs back", ("future-leak", "future-leak-through-norm", "mask-lost-on-slow-path", "batch-coupling", "norm-over-time")),
        Entry("batch-coupling", E, "information flow", "a row of the batch depends on its neighbours", ("future-leak", "mask-broadcast-wrong", "mask-lost-on-slow-path", "cache-differs", "cache-shared-between-rows", "padding-leak-left", "padding-leak-right", "mask-ignored", "reach-too-short")),
        Entry("reach-too-short", E, "information flow", "an output does not depend on inputs that it should see"),
        Entry("window-off-by-one", W, "information flow", "a window is one key wider or narrower than it says", ("reach-too-short",)),
        # masks and padding
        Entry("padding-leak-left", E, "masks", "padding on the left changes real tokens", ("padding-moves-positions",)),
        Entry("padding-leak-right", E, "masks", "padding on the right changes real tokens"),
        Entry("padding-moves-positions", W, "masks", "padding on the left shifts the positions of real tokens"),
        Entry("mask-ignored", E, "masks", "a mask that is passed has no effect", ("padding-leak-left", "padding-leak-right", "mask-broadcast-wrong", "padding-moves-positions")),
        Entry("mask-inverted", E, "masks", "what should be hidden is seen, and the other way round", ("future-leak", "padding-leak-left", "padding-leak-right", "reach-too-short", "mask-broadcast-wrong", "nan-row", "padding-moves-positions", "cache-differs", "mask-lost-on-slow-path")),
        Entry("mask-broadcast-wrong", E, "masks", "a row is masked with the mask of another row", ("padding-leak-left", "padding-leak-right", "padding-moves-positions")),
        Entry("mask-lost-on-slow-path", E, "masks", "a mask is dropped on another path: in training, with weights returned, with padding"),
        Entry("finite-mask", W, "masks", "hidden scores get a finite value that a large score can beat", ("future-leak", "padding-leak-left", "padding-leak-right", "mask-lost-on-slow-path")),
        Entry("nan-row", E, "masks", "a query that may see nothing gives NaN", ("residual-missing", "reach-too-short", "half-precision-overflow", "future-leak", "permutation-equivariant", "mask-lost-on-slow-path", "cache-differs", "padding-leak-left", "padding-leak-right", "padding-moves-positions", "mask-broadcast-wrong")),
        Entry("causal-aligned-top-left", E, "masks", "with more keys than queries the causal mask is aligned to the wrong corner", ("cache-differs", "positions-not-offset-in-cache")),
        # arithmetic
        Entry("scale-missing", E, "arithmetic", "scores are not divided by the square root of the head width"),
        Entry("scale-by-model-width", E, "arithmetic", "scores are divided by the square root of the model width, not of the head width"),
        Entry("scale-applied-twice", E, "arithmetic", "scores are scaled twice"),
        Entry("scale-inverted", E, "arithmetic", "scores are multiplied by the square root, not divided"),
        Entry("softmax-axis", E, "arithmetic", "the softmax runs over queries, heads or the batch, not over keys", _all_but()),
        Entry("softmax-before-mask", E, "arithmetic", "weights are masked after the softmax and no longer sum to one", _all_but()),
        Entry("heads-mixed-by-view", E, "arithmetic", "a view where a transpose was needed mixes time with heads", (*_all_but(), "scale-missing", "scale-by-model-width", "norm-over-time", "dead-parameters")),
        Entry("heads-slice-time", E, "arithmetic", "heads are cut from the time axis, not from the width", (*_all_but(), "scale-by-model-width", "scale-missing")),
        Entry("qk-swapped-cross", E, "arithmetic", "in cross-attention the queries come from the source", ("softmax-axis", "reach-too-short", "mask-ignored")),
        Entry("value-projection-shared", W, "arithmetic", "values are the keys: the value projection is missing or not used", ("dead-parameters",)),
        Entry("key-projection-shared", W, "arithmetic", "keys are the queries: the key projection is not used", ("dead-parameters",)),
        Entry("output-projection-missing", N, "arithmetic", "merged heads are not projected"),
        Entry("residual-missing", E, "arithmetic", "a sublayer replaces its input instead of adding to it"),
        Entry("norm-misplaced", W, "arithmetic", "the block claims pre-norm and is post-norm, or the other way round"),
        Entry("norm-over-time", E, "arithmetic", "a norm takes its statistics over the time axis", ("future-leak-through-norm",)),
        Entry("gelu-variant", N, "arithmetic", "the activation is another GELU than the config says"),
        Entry("tied-weights-broken", W, "arithmetic", "tied in name: two equal matrices that training moves apart"),
        # positions
        Entry("permutation-equivariant", E, "positions", "the model cannot tell the order of its input", ("dead-parameters",)),
        Entry("positions-not-offset-in-cache", E, "positions", "with a cache every new token is at position 0", ("cache-differs", "causal-aligned-top-left")),
        Entry("rotary-pairs", E, "positions", "rotary angles and rotated pairs do not belong together", ("cache-differs", "padding-moves-positions", "padding-leak-left")),
        Entry("rotary-on-values", W, "positions", "values are rotated too", ("padding-moves-positions", "padding-leak-left")),
        Entry("sinusoid-frequency", W, "positions", "the frequencies of the position encoding are not those of the formula"),
        Entry("positions-past-length-wrap", W, "positions", "positions past the length are reused without an error"),
        # cache
        Entry("cache-differs", E, "cache", "step by step gives other outputs than all at once", ("cache-shared-between-rows",)),
        Entry("cache-mutated-in-place", E, "cache", "a second use of the model or its cache gives another output", ("cache-differs", "eval-nondeterministic", "batch-coupling", "future-leak", "cache-shared-between-rows", "mask-broadcast-wrong", "padding-leak-left", "padding-leak-right", "padding-moves-positions")),
        Entry("cache-shared-between-rows", E, "cache", "rows of a batch share their cache"),
        Entry("cross-attention-recomputed", N, "cache", "keys and values of the source are computed again at each step"),
        # training
        Entry("loss-not-shifted", E, "training", "the loss compares an output with its own input"),
        Entry("loss-shifted-twice", E, "training", "the loss predicts the token after the next one"),
        Entry("loss-counts-padding", E, "training", "padding counts in the loss", ("mean-of-means",)),
        Entry("mean-of-means", W, "training", "the loss is a mean of means, so rows with few tokens count more"),
        Entry("initial-loss", W, "training", "the loss of the untrained model is far from ln V"),
        Entry("dead-parameters", W, "training", "parameters get no gradient"),
        Entry("dropout-in-eval", E, "training", "dropout is active in eval mode", (*_all_but(), "eval-nondeterministic")),
        Entry("dropout-on-scores", E, "training", "dropout is applied to scores, not to weights"),
        Entry("dropout-not-applied", W, "training", "dropout is set but never applied"),
        Entry("eval-nondeterministic", E, "training", "outputs in eval mode are random", _all_but()),
        Entry("gradient-through-memory", W, "training", "the returned memory keeps its graph"),
        Entry("half-precision-overflow", W, "training", "NaN or infinity in half precision"),
        Entry("checkpointing-changes-gradient", E, "training", "activation checkpointing changes the gradient"),
    )
}  # fmt: skip


def finding(
    name: str,
    sentence: str,
    place: Place = Place(),
    *,
    shows: str = "",
    effect: float | None = None,
    right: str = "",
    severity: Severity | None = None,
    reproduction: str | None = None,
) -> Finding:
    """A finding with the severity of its entry, unless given."""
    chosen = ENTRIES[name].severity if severity is None else severity
    return Finding(name, chosen, sentence, place, shows, effect, right, reproduction=reproduction)


def resolve(found: list[Finding]) -> list[Finding]:
    """One finding for each name; those that another one explains become its consequences."""
    by_name: dict[str, Finding] = {}
    for each in found:
        by_name.setdefault(each.name, each)
    kept: list[Finding] = []
    for each in by_name.values():
        causes = [
            other
            for other in by_name.values()
            if each.name in ENTRIES[other.name].explains
            and other.name not in ENTRIES[each.name].explains
            and other.severity is not Severity.INFO
        ]
        if not causes:
            kept.append(each)
    order = list(Severity)
    named = {each.name for each in kept}
    final = []
    for each in sorted(kept, key=lambda one: order.index(one.severity)):
        explained = [
            name for name in ENTRIES[each.name].explains if name in by_name and name not in named
        ]
        final.append(Finding(**{**vars(each), "consequences": tuple(explained)}))
    return final
