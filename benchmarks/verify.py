"""Detection rate of `clearformer verify` on planted bugs, and false positives on correct models.

    python benchmarks/verify.py [--matrix] [--peers] [--families] [--speed]

Prints the bugs that were missed or misnamed, the share that was found and named, false alarms on
correct models, and with flags the confusion matrix, other tools on the same mutants, the small
models of transformers as correct ones, and the time for a million parameters.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from verify_models.correct import correct_models
from verify_models.fresh import BUGS
from verify_models.mutants import MUTANTS
from verify_models.sources import SOURCES, Source, class_of, file_of
from verify_models.styles.bugs import STYLES, style_source

from clearformer.verification.calls import Inputs
from clearformer.verification.check import verify
from clearformer.verification.probe import Probe


def mutants() -> Iterator[tuple[str, str, Callable[[], nn.Module]]]:
    """(bug, where it is planted, how the model is made)."""
    for mutant in MUTANTS:
        yield mutant.bug, mutant.source, mutant.model
    for bug, name, old, new in BUGS:
        source = Source(f"fresh_{name}", file_of("fresh"), class_of(name))
        yield bug, source.name, partial(source.model, [(old, new)])
    for style, (_, bugs) in STYLES.items():
        for bug, name, *texts in bugs:
            edits = list(zip(texts[::2], texts[1::2], strict=True))
            yield bug, name, partial(style_source(style, name).model, edits)


def problems(model: nn.Module) -> list[str]:
    """The names of errors and warnings."""
    try:
        return [each.name for each in verify(model).problems]
    except ValueError as problem:
        return [f"refused: {str(problem)[:80]}"]


def score(matrix: bool) -> None:
    """For every mutant: found, and named correctly."""
    found = named = total = 0
    confusion: Counter[tuple[str, str]] = Counter()
    for bug, where, make in mutants():
        torch.manual_seed(0)
        got = problems(make())
        total += 1
        found += bool(got)
        named += bug in got
        shown = bug if bug in got else [*got, "nothing"][0]
        confusion[bug, shown] += 1
        if bug not in got:
            print(f"  {bug:30} in {where:18} {', '.join(got) or 'nothing'}")
    print(f"{total} mutants: {found / total:.1%} found, {named / total:.1%} named right")
    if matrix:
        for (planted, name), count in sorted(confusion.items()):
            print(f"  {planted:32} {name:32} {count}")


def false_alarms(families: bool) -> None:
    """Correct models: no error, no warning."""
    total = alarms = 0
    for name, make in correct_models(families):
        torch.manual_seed(0)
        try:
            model = make()
        except Exception as problem:
            print(f"  {name:44} not built: {type(problem).__name__}")
            continue
        total += 1
        if got := problems(model):
            alarms += 1
            print(f"  {name:44} {', '.join(got)}")
    print(f"{total} correct models: {alarms} with an alarm")


def speed() -> None:
    """A model of about a million parameters."""
    module = SOURCES["gpt"]
    model = Source("gpt", module.file, class_of("GPT", vocab=1000, width=128, layers=4)).model()
    count = sum(each.numel() for each in model.parameters())
    start = time.perf_counter()
    verify(model)
    print(f"{count:,} parameters: {time.perf_counter() - start:.1f} s")


# --- other tools ---------------------------------------------------------------------------------


class OneInput(nn.Module):
    """A model with one input and one output tensor, called as `verify` found that it wants."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        probe = Probe(model)
        self.form, self.probe_output = probe.form, probe.output
        self.example = probe.inputs()
        if not probe.takes_tokens:
            self.example = replace(self.example, stream=self.example.stream.float())
        self.classes = probe.vocabulary if probe.is_language_model else None

    def forward(self, x: Tensor) -> Tensor:
        source = self.example.source
        if source is not None:
            source = source[:1].expand(len(x), *source.shape[1:])
            source = source.float() if source.is_floating_point() else source
        inputs = Inputs(x, source)
        positional, named = self.form.arguments(inputs, torch.float32)
        return self.probe_output(self.model(*positional, **named), inputs)


def by_certificate(model: OneInput) -> bool:
    """causal-certificate: whether a causal model leaks, at the embeddings where it takes tokens."""
    from causal_certificate import certify

    model = model.eval()
    inputs = model.example.stream
    if inputs.is_floating_point():
        return not certify(model, inputs).ok
    tables = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    ready = tables[0](inputs).detach()

    def from_embeddings(x: Tensor) -> Any:
        handle = tables[0].register_forward_hook(lambda *_: x)
        try:
            return model(inputs)
        finally:
            handle.remove()

    return not certify(from_embeddings, ready).ok


def by_pytest_torch(model: OneInput) -> bool:
    """pytest-torch: its inference contract (eval mode, finite, deterministic, rows independent)."""
    from pytest_torch import check_inference_contract

    try:
        check_inference_contract(model.eval(), model.example.stream)
    except AssertionError:
        return True
    return False


def by_torchtest2(model: OneInput) -> bool:
    """torchtest2: its checks, with a loss, targets and an optimizer as in training.

    Without the one that overfits a batch: 200 steps of training for each model, on random data.
    """
    from torchtest2 import check_model

    x = model.example.stream
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss: Callable[[Tensor, Tensor], Tensor]
    if model.classes is not None:
        targets, loss = x.roll(-1, 1), _next_token
    else:
        targets, loss = torch.randn_like(model(x)), nn.functional.mse_loss
    report = check_model(
        model, x, targets, loss_fn=loss, optimizer=optimizer, overfit_steps=0, verbose=False
    )
    return not report.ok


def _next_token(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def peers() -> None:
    """Other tools on the same models; a tool that cannot run a model has not found its bug."""
    planted = [(bug, make) for bug, _, make in mutants()]
    sound = [("", make) for _, make in correct_models(False)]
    for tool in (by_certificate, by_pytest_torch, by_torchtest2):
        outcome: Counter[str] = Counter()
        for bug, make in [*planted, *sound]:
            torch.manual_seed(0)
            try:
                hit = tool(OneInput(make()))
            except Exception:
                outcome["failed on a mutant" if bug else "failed on a correct model"] += 1
                continue
            if hit:
                outcome["mutants found" if bug else "alarms"] += 1
        print(f"{tool.__name__}: {dict(outcome)}; {len(planted)} mutants, {len(sound)} correct")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--matrix", "--peers", "--families", "--speed"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.speed:
        speed()
    score(options.matrix)
    false_alarms(options.families)
    if options.peers:
        peers()


if __name__ == "__main__":
    main()
