"""Cluster estimates: consistency of the arithmetic."""

import pytest

from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.plan.cluster import CUDA_BYTES, Gpu, estimate


@pytest.fixture(scope="module")
def config(small):
    return RunConfig(
        model=small("gpt2", layers=4, width=64, hidden=256, heads=4, length=128, vocabulary=500),
        data=DataConfig(source="x"),
        train=TrainConfig(learning_rate=1e-3, batch_size=4, steps=1),
    )


def test_days_scale_with_work_and_gpus(config):
    gpu = Gpu(memory=CUDA_BYTES + 10**9)
    one = estimate(config, 8, "ddp", gpu, tokens=1e9)
    assert one.memory <= gpu.memory
    assert one.recompute is None
    more = estimate(config, 64, "ddp", gpu, tokens=1e9)
    assert one.days / more.days == pytest.approx(8, rel=0.01)
    faster = estimate(config, 8, "ddp", Gpu(gpu.memory, 312, 0.8), tokens=1e9)
    assert one.days / faster.days == pytest.approx(2)
    parameters = 238592
    usual = estimate(config, 8, "ddp", gpu, tokens=None)
    assert usual.days / one.days == pytest.approx(20 * parameters / 1e9, rel=0.01)


def test_fsdp2_uses_less_memory_per_gpu(config):
    gpu = Gpu(memory=CUDA_BYTES + 10**9)
    copies, shared = (estimate(config, 8, way, gpu, 1e9) for way in ("ddp", "fsdp2"))
    assert shared.states < copies.states
    assert shared.traffic == copies.traffic  # gathered and reduced, as much as reduced twice
    alone = estimate(config, 1, "fsdp2", gpu, 1e9)
    assert (alone.states, alone.traffic) == (copies.states, 0)


def test_short_memory_uses_recomputation_or_does_not_fit(config):
    copies = estimate(config, 8, "ddp", Gpu(memory=CUDA_BYTES + 10**9), 1e9)
    tight = Gpu(memory=CUDA_BYTES + copies.states + 2 * 10**6)
    assert estimate(config, 8, "ddp", tight, 1e9).recompute == 1
    assert estimate(config, 8, "ddp", Gpu(memory=CUDA_BYTES), 1e9).rows == 0
