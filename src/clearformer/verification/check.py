"""`verify`: checks a model for the bugs of the catalogue."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from clearformer.verification.catalogue import CHECKS, chosen_names
from clearformer.verification.checks.arithmetic import time_slices_in, views_in
from clearformer.verification.claims import KINDS
from clearformer.verification.entries import ENTRIES, resolve
from clearformer.verification.findings import Finding, Report
from clearformer.verification.noise import randomness
from clearformer.verification.pictures import from_patches
from clearformer.verification.probe import BATCH, Probe, UncallableError
from clearformer.verification.targets import Target, open_target
from clearformer.verification.trace import is_outside


def verify(
    target: object,
    *,
    as_: str | None = None,
    only: Sequence[str] | None = None,
    skip: Sequence[str] | None = None,
    seed: int = 0,
) -> Report:
    """Find known bugs in a transformer.

    Args:
        target (nn.Module, class, function, path or str): A module, a class or function that makes
            one, a run, a Hugging Face folder, or a text such as ``"my_model.py:MyGPT"`` or
            ``"package.module:factory"``.
        as_ (str, optional): What the model is, where its name does not say it: causal-lm,
            masked-lm, encoder, seq2seq, classifier, attention, causal-attention or causal-stack.
        only (list of str, optional): Names of bugs to look for. Default: all.
        skip (list of str, optional): Names of bugs not to look for. Default: none.
        seed (int): Seed of the noise and of the inputs. Default: 0.

    Returns:
        Report: True if nothing is wrong; printed, it names each bug. The model is not changed.
    """
    if as_ is not None and as_ not in KINDS:
        raise ValueError(f"as is {as_!r}, but it must be one of {', '.join(KINDS)}")
    names = chosen_names(list(only or ()), list(skip or ()))
    start = time.perf_counter()
    with randomness(seed):  # new weights are the same ones each time
        opened = open_target(target)
    with one_thread():
        report = _report(opened, as_, names, seed)
    return replace(report, seconds=time.perf_counter() - start)


@contextmanager
def one_thread() -> Iterator[None]:
    """Tiny tensors are slower with more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _report(opened: Target, kind: str | None, names: set[str], seed: int) -> Report:
    try:
        probe = _probe(opened.model, kind, seed)
    except UncallableError as problem:
        explained = _explained(problem, opened.model, names)
        if not explained:
            raise
        return Report(opened.label, "a module that fails", (), tuple(explained), (), seed=seed)
    found, ran, skipped = _run_checks(probe, names)
    notes = (*opened.notes, *assumptions(probe))
    return Report(opened.label, read_as(probe), notes, tuple(found), tuple(ran), skipped, seed=seed)


def _probe(model: nn.Module, kind: str | None, seed: int) -> Probe:
    """A probe of the model: of its patches, if it takes images; of a part, if it gives a loss."""
    for each in from_patches(model):
        if (probe := _tried(each, kind, seed)) is not None:
            probe.notes.append("it takes images: their patches are the sequence")
            return probe
    try:
        return Probe(model, kind=kind, seed=seed)
    except UncallableError as problem:
        if "Tensor of shape ()" not in str(problem):
            raise
        for name, part in model.named_children():
            if (probe := _tried(part, kind, seed)) is not None:
                probe.notes.append(f"{type(model).__name__} returns a loss: {name} is looked at")
                return probe
        raise


def _tried(model: nn.Module, kind: str | None, seed: int) -> Probe | None:
    try:
        return Probe(model, kind=kind, seed=seed)
    except ValueError:
        return None


def _run_checks(probe: Probe, names: set[str]) -> tuple[list[Finding], list[str], dict[str, str]]:
    found: list[Finding] = []
    ran: list[str] = []
    skipped: dict[str, str] = {}
    wanted = _with_causes(names)
    for check in CHECKS:
        if not wanted.intersection(check.names):
            continue
        try:
            found += check.run(probe)
            ran.append(check.run.__name__)
        except Exception as problem:
            skipped[check.run.__name__] = _why(problem)
    kept = [each for each in resolve(found) if each.name in names]
    return kept, ran, skipped


def _why(problem: Exception) -> str:
    """Why a check could not run: the model failed at a line of its own, or the check did."""
    reason = f"{type(problem).__name__}: {' '.join(str(problem).split())[:160]}"
    frames = traceback.extract_tb(problem.__traceback__)
    own = [each for each in frames if is_outside(each.filename)]
    if own:
        file = "/".join(own[-1].filename.split("/")[-2:])
        return f"the model fails at {file}:{own[-1].lineno}: {reason}"
    if any("/torch/" in each.filename for each in frames[-3:]):
        return f"the model fails: {reason}"
    return f"the check itself failed, which is a bug of clearformer: {reason}"


def _with_causes(names: set[str]) -> set[str]:
    """Bugs to look for, and those that would explain them."""
    causes = {entry.name for entry in ENTRIES.values() if names.intersection(entry.explains)}
    return names | causes


def _explained(problem: UncallableError, model: nn.Module, names: set[str]) -> list[Finding]:
    """Bugs that make a module fail."""
    trace = problem.trace
    if trace is None:
        return []
    from clearformer.verification.calls import lengths

    length = lengths(model, BATCH)[0]
    found = [
        *time_slices_in(trace, length, BATCH, f"random vectors of length {length}"),
        *views_in(trace, length, BATCH, f"random vectors of length {length}"),
    ]
    return [each for each in resolve(found) if each.name in names]


def read_as(probe: Probe) -> str:
    """How the model was interpreted, in a few words."""
    kind = probe.kind or _kind(probe)
    parts = [kind]
    if probe.attention:
        parts.append(f"{len(probe.attention)} attention{'' if len(probe.attention) == 1 else 's'}")
        shape = probe.attention[0].raw
        if shape is not None and shape.dim() == 4:
            parts.append(f"{shape.shape[1]} heads")
    if probe.takes_tokens:
        parts.append(f"{probe.vocabulary} tokens")
    elif probe.width:
        parts.append(f"vectors of {probe.width}")
    return ", ".join(parts)


def _kind(probe: Probe) -> str:
    if probe.form.source is not None:
        return "encoder-decoder" if probe.takes_tokens else "attention over a source"
    if not probe.per_token:
        return "classifier"
    if probe.is_language_model:
        return "causal language model" if probe.claim.causal else "language model"
    if probe.takes_tokens:
        return "causal encoder" if probe.claim.causal else "encoder"
    return "causal stack of vectors" if probe.claim.causal else "stack of vectors"


def assumptions(probe: Probe) -> list[str]:
    """The assumptions, one sentence each."""
    state = {True: "causal", False: "looks both ways", None: "no claim about causality"}
    found = [f"{state[probe.claim.causal]}: {probe.claim.reason}", *probe.notes]
    if probe.claim.prefix:
        found.append(f"a prefix of {probe.claim.prefix} that all positions may see")
    if probe.claim.window is not None:
        found.append(f"a window of {probe.claim.window}")
    if probe.dtype is not torch.float64:
        found.append("checked in float32: it does not run in float64")
    return found
