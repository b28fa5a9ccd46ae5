"""Catalogue of all checks, in the order in which they run, with the names they may report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clearformer.did_you_mean import nearest
from clearformer.verification.checks import (
    arithmetic,
    cache,
    information_flow,
    masks,
    padding_ids,
    positions,
    training,
)
from clearformer.verification.entries import ENTRIES
from clearformer.verification.findings import Finding
from clearformer.verification.probe import Probe


@dataclass(frozen=True)
class Check:
    """A check, and the bugs that it can report."""

    run: Callable[[Probe], Iterator[Finding]]
    names: tuple[str, ...]


LEAKS = ("future-leak", "future-leak-through-norm", "future-leak-through-pooling",
         "future-leak-through-batch")  # fmt: skip
CHECKS = (
    Check(training.randomness_in_eval, ("dropout-in-eval", "eval-nondeterministic")),
    Check(cache.second_use, ("cache-mutated-in-place",)),
    Check(masks.empty_rows, ("nan-row",)),
    Check(arithmetic.heads_by_view, ("heads-mixed-by-view",)),
    Check(arithmetic.slices_of_time, ("heads-slice-time",)),
    Check(arithmetic.softmax_direction, ("softmax-axis", "softmax-before-mask")),
    Check(arithmetic.scale, ("scale-missing", "scale-by-model-width", "scale-applied-twice", "scale-inverted")),
    Check(masks.upside_down, ("mask-inverted",)),
    Check(masks.mask_values, ("finite-mask",)),
    Check(information_flow.batch_coupling, ("batch-coupling",)),
    Check(information_flow.future_leak, LEAKS),
    Check(information_flow.leak_in_training, ("future-leak-through-batch", "future-leak-through-norm", "mask-lost-on-slow-path", "batch-coupling")),
    Check(information_flow.reach, ("reach-too-short",)),
    Check(information_flow.window, ("window-off-by-one",)),
    Check(masks.padding, ("padding-leak-left", "padding-leak-right", "padding-moves-positions", "mask-ignored", "mask-inverted", "mask-broadcast-wrong", "nan-row")),
    Check(padding_ids.padding_ids, ("padding-leak-right", "mask-inverted", "mask-broadcast-wrong")),
    Check(masks.slow_paths, ("mask-lost-on-slow-path",)),
    Check(arithmetic.swapped_cross_attention, ("qk-swapped-cross",)),
    Check(arithmetic.shared_projections, ("value-projection-shared", "key-projection-shared")),
    Check(arithmetic.output_projection, ("output-projection-missing",)),
    Check(arithmetic.residuals, ("residual-missing",)),
    Check(arithmetic.norm_placement, ("norm-misplaced",)),
    Check(arithmetic.norm_over_time, ("norm-over-time",)),
    Check(arithmetic.gelu_variant, ("gelu-variant",)),
    Check(arithmetic.tied_weights, ("tied-weights-broken",)),
    Check(positions.order, ("permutation-equivariant",)),
    Check(positions.rotary, ("rotary-pairs", "rotary-on-values")),
    Check(positions.sinusoids, ("sinusoid-frequency",)),
    Check(positions.past_length, ("positions-past-length-wrap",)),
    Check(cache.steps, ("cache-differs", "positions-not-offset-in-cache", "cache-shared-between-rows", "causal-aligned-top-left")),
    Check(cache.source_recomputed, ("cross-attention-recomputed",)),
    Check(training.loss_shift, ("loss-not-shifted", "loss-shifted-twice")),
    Check(training.loss_over_batch, ("loss-counts-padding", "mean-of-means")),
    Check(training.first_loss, ("initial-loss",)),
    Check(training.dead_parameters, ("dead-parameters",)),
    Check(training.dropout_places, ("dropout-on-scores", "dropout-not-applied")),
    Check(training.memory_gradient, ("gradient-through-memory",)),
    Check(training.half_precision, ("half-precision-overflow",)),
    Check(training.checkpointing, ("checkpointing-changes-gradient",)),
)  # fmt: skip


def chosen_names(only: list[str] | None, skip: list[str] | None) -> set[str]:
    """The selected bugs; ValueError for an unknown name."""
    for name in [*(only or ()), *(skip or ())]:
        if name not in ENTRIES:
            raise ValueError(f"there is no check {name!r}: {nearest(name, ENTRIES)}")
    names = set(ENTRIES) if not only else set(only)
    return names - set(skip or ())
