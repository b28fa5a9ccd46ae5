"""float16 loss scaling: overflowing steps are skipped, counted, and kept across a resume."""

from dataclasses import replace

import pytest
import torch

from clearformer.config import AdamW, DataConfig, HiddenMemory, Muon, RunConfig, TrainConfig
from clearformer.core.model import Batch
from clearformer.data import DataFolders
from clearformer.families import modern, xl
from clearformer.runs import checkpoint, metrics
from clearformer.runs.run import Run
from clearformer.training import precision
from clearformer.training.events import Skipped, Step
from clearformer.training.loss_scaling import LossScaling, Scaling, loss_scaling_for
from clearformer.training.optim import make_optimizers
from clearformer.training.step import NonFiniteError, train_step

CPU = torch.device("cpu")
HUGE = {"scale": 2.0**30, "good_steps": 0, "skipped": 0, "in_a_row": 0}


@pytest.fixture
def batch():
    tokens = torch.randint(20, (4, 12))
    return Batch(tokens, tokens.roll(-1, 1))


def test_only_float16_uses_loss_scaling():
    assert type(loss_scaling_for("float16", CPU)) is LossScaling
    assert {type(loss_scaling_for(each, CPU)) for each in ("float32", "bfloat16")} == {Scaling}


@pytest.mark.parametrize("optimizer", [AdamW(), Muon()])
def test_overflow_skips_step_and_halves_scale(generator_model, train_config, batch, optimizer):
    optimizers = make_optimizers(generator_model, replace(train_config, optimizer=optimizer))
    scaling = LossScaling(CPU)
    before = [p.detach().clone() for p in generator_model.parameters()]
    spoiled = next(generator_model.parameters())  # one of many; the others must not move either
    hook = spoiled.register_hook(lambda gradient: gradient * float("inf"))
    outcome = train_step(
        generator_model.loss, generator_model.parameters(), optimizers, [batch], torch.tensor([48]),
        1.0, scaling,
    )  # fmt: skip
    assert outcome.skipped
    assert (scaling.scale, scaling.skipped, scaling.in_a_row) == (32768, 1, 1)
    assert all(p.equal(old) for p, old in zip(generator_model.parameters(), before, strict=True))
    assert not any(optimizer.state for optimizer in optimizers)
    hook.remove()
    outcome = train_step(
        generator_model.loss, generator_model.parameters(), optimizers, [batch], torch.tensor([48]),
        1.0, scaling,
    )  # fmt: skip
    assert not outcome.skipped
    assert (scaling.scale, scaling.skipped, scaling.in_a_row) == (32768, 1, 0)
    assert not any(
        p.equal(old) for p, old in zip(generator_model.parameters(), before, strict=True)
    )


def test_scaling_does_not_change_gradients(modern_model, batch, train_config):
    """A power of two in, the same power out: exact, as long as nothing over- or underflows."""

    def gradients(scaling):
        optimizers = make_optimizers(modern_model, train_config)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.0
        loss = precision.autocast_loss(modern_model.loss, "float32", CPU)
        train_step(
            loss, modern_model.parameters(), optimizers, [batch], torch.tensor([48]), None, scaling
        )
        return [p.grad.clone() for p in modern_model.parameters()]

    for one, other in zip(gradients(Scaling()), gradients(LossScaling(CPU)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_twenty_overflows_in_a_row_raise(generator_model, train_config, batch):
    scaling = LossScaling(CPU)
    optimizers = make_optimizers(generator_model, train_config)

    def broken(batch):
        sums, counts = generator_model.loss(batch)
        return sums * float("nan"), counts

    def one_step():
        return train_step(
            broken,
            generator_model.parameters(),
            optimizers,
            [batch],
            torch.tensor([48]),
            1.0,
            scaling,
        )

    assert all(one_step().skipped for _ in range(19))
    with pytest.raises(NonFiniteError, match=r"20 steps in a row overflowed float16.*bfloat16"):
        one_step()


def test_state_round_trip():
    one, other = LossScaling(CPU), LossScaling(CPU)
    kept = {"scale": 512.0, "good_steps": 7, "skipped": 9, "in_a_row": 2}
    one.load(kept)
    assert one.numbers() == kept
    other.load(one.numbers())
    assert other.numbers() == kept
    assert other.scale_loss(torch.ones(())).item() == 512


# --- in a run ------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path):
    source = tmp_path / "text.txt"
    source.write_text("the cat sat on the mat, and the dog sat on the log.\n" * 60)
    model = replace(modern("tiny"), length=16, layers=2, width=16, hidden=32, heads=2, key_heads=1)
    return RunConfig(
        model=model,
        data=DataConfig(source=str(source)),
        train=TrainConfig(
            learning_rate=1e-2,
            batch_size=4,
            steps=30,
            evaluations=1,
            threads=1,
            precision="float16",
            accumulation_steps=2,
        ),
    )


def start(config, folder, **more):
    return Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more)


def told(folder):
    clock = {"seconds", "progress"}
    return [
        {k: v for k, v in record.items() if k not in clock}
        for record in metrics.read(folder / "metrics.jsonl")
    ]


def test_skipped_steps_are_counted_across_resume(config, tmp_path):
    whole = start(config, tmp_path / "whole")
    whole.state.scaling.load(HUGE)
    events = list(whole.events())
    left_out = [event for event in events if isinstance(event, Skipped)]
    trained = [event for event in events if isinstance(event, Step)]
    assert 3 <= len(left_out) < 20
    assert left_out[0] == Skipped(1, 2.0**29, 1)
    assert sorted(e.step for e in left_out + trained) == list(range(1, 31))
    assert trained[-1].loss < trained[0].loss

    part = start(config, tmp_path / "part")
    part.state.scaling.load(HUGE)
    list(part.events(lambda: part.state.step >= 2))
    again = start(None, tmp_path / "part", resume=True)
    assert again.state.scaling.numbers() == {
        "scale": 2.0**28, "good_steps": 0, "skipped": 2, "in_a_row": 2,
    }  # fmt: skip
    list(again.events())
    assert told(tmp_path / "part") == told(tmp_path / "whole")
    one, other = (
        checkpoint.newest(tmp_path / name / "checkpoints", print) for name in ("part", "whole")
    )
    for name, value in one.tensors("model.safetensors").items():
        assert value.equal(other.tensors("model.safetensors")[name]), name
    assert one.json("state.json")["scaling"] == other.json("state.json")["scaling"]


def test_run_that_always_overflows_ends(config, tmp_path):
    run = start(config, tmp_path / "run")
    run.state.scaling.load({**HUGE, "scale": 2.0**120})
    with pytest.raises(NonFiniteError, match="step 20: 20 steps in a row overflowed float16"):
        list(run.events())
    assert told(tmp_path / "run")[-1] == {
        "event": "end", "step": 19, "reason": "error", "exit": 3,
    }  # fmt: skip


def test_memory_is_reset_after_overflow(config, tmp_path):
    model = replace(
        xl("tiny"), length=16, layers=1, width=16, hidden=32, heads=2, cache=HiddenMemory(length=16)
    )
    run = start(replace(config, model=model), tmp_path / "xl")
    events = run.events()
    while not isinstance(next(events), Step):
        pass
    table = run.model.embedding.token.weight
    with torch.no_grad():
        good = table.clone()
        table.fill_(float("inf"))
    assert isinstance(next(events), Skipped)
    assert run.state.memory.tensors() == {}
    with torch.no_grad():
        table.copy_(good)
    assert isinstance(next(events), Step)
    events.close()
