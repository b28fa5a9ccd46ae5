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

from clearformer.verification.check import verify


def mutants() -> Iterator[tuple[str, str, Callable[[], nn.Module]]]:
    """(bug, where it is planted, how the model is made)."""
    for mutant in MUTANTS:
        yield mutant.bug, mutant.source, mutant.model
    for bug, name, old, new in BUGS:
        source = Source(f"fresh_{name}", file_of("fresh"), class_of(name))
        yield bug, source.name, partial(source.model, [(old, new)])


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


def _tokens(model: nn.Module) -> Tensor:
    tables = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    return torch.randint(4, tables[0].num_embeddings, (3, 7)) if tables else torch.randn(3, 7, 32)


def by_certificate(model: nn.Module) -> bool:
    """causal-certificate: whether a causal model leaks, at the embeddings where it takes tokens."""
    from causal_certificate import certify

    model = model.eval()
    tables = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    inputs = _tokens(model)
    if not tables:
        return not certify(_first(model), inputs).ok
    ready = tables[0](inputs).detach()

    def from_embeddings(x: Tensor) -> Any:
        handle = tables[0].register_forward_hook(lambda *_: x)
        try:
            return _first(model)(inputs)
        finally:
            handle.remove()

    return not certify(from_embeddings, ready).ok


def by_pytest_torch(model: nn.Module) -> bool:
    """pytest-torch: its inference contract (eval mode, finite, deterministic, rows independent)."""
    from pytest_torch import check_inference_contract

    try:
        check_inference_contract(model.eval(), _tokens(model))
    except AssertionError:
        return True
    return False


def _first(model: nn.Module) -> Callable[..., Tensor]:
    def call(x: Tensor) -> Tensor:
        found = model(x)
        found = getattr(found, "logits", found)
        found = found["logits"] if isinstance(found, dict) else found
        return found[0] if isinstance(found, tuple) else found

    return call


def peers() -> None:
    """Other tools on the same mutants; a tool that cannot run a model has not found its bug."""
    for tool in (by_certificate, by_pytest_torch):
        outcome: Counter[str] = Counter()
        for bug, _, make in mutants():
            torch.manual_seed(0)
            try:
                hit = tool(make())
                outcome["found" if hit else "silent"] += 1
                outcome[f"found {bug.partition('-')[0]}"] += hit
            except Exception:
                outcome["failed"] += 1
        alarms = 0
        for _, make in correct_models(False):
            try:
                alarms += tool(make())
            except Exception:
                continue
        print(f"{tool.__name__}: {dict(outcome)}; {alarms} correct models with an alarm")


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
