"""The report of `clearformer plan`: memory, work, and cluster estimates."""

from __future__ import annotations

from typing import Literal

from clearformer.builder import outline
from clearformer.config import RunConfig
from clearformer.data import DataFolders
from clearformer.plan import cluster, planner, throughput
from clearformer.plan.cluster import ClusterEstimate, Gpu
from clearformer.plan.data_sizes import epoch_steps
from clearformer.plan.planner import Plan
from clearformer.runs.progress import clock
from clearformer.training import recompute
from clearformer.training.memory import format_bytes


def memory_lines(plan: Plan, limit: int | None) -> list[str]:
    """Memory by part, and that of stored attention scores (eq. 28)."""
    model, counted, train = plan.config.model, plan.counted, plan.config.train
    cached = model.memory or 0
    table = 4 * plan.rows * model.heads * model.length * (model.length + cached)
    of = "" if limit is None else f" of {format_bytes(limit)}"
    return [
        f"{model.name}: {counted.parameters:,} parameters",
        f"\nmemory, {plan.rows} at a time, in {train.precision}, recomputing "
        f"{recompute.describe(train.recompute)}",
        f"  weights           {format_bytes(counted.weights):>10}",
        f"  gradients         {format_bytes(counted.gradients):>10}",
        f"  optimizer         {format_bytes(counted.optimizer):>10}",
        *([f"  average           {format_bytes(counted.average):>10}"] if counted.average else []),
        f"  activations       {format_bytes(counted.activations):>10}   (left by the forward pass: "
        f"{format_bytes(counted.kept)})",
        f"  Python and torch  {format_bytes(plan.base):>10}",
        f"  in all            {format_bytes(plan.total):>10}{of}",
        f"  tables of scores  {format_bytes(4 * table * model.layers):>10}   if they were kept: "
        f"4 × {model.layers} layers × {format_bytes(table)} "
        f"({model.length} × {model.length + cached}, {model.heads} heads)",
    ]


def work_lines(plan: Plan, places: DataFolders) -> list[str]:
    """Operations, measured throughput, and the time or steps of the budget."""
    config, counted = plan.config, plan.counted
    train = config.train
    pair_lengths = plan.fixed.pair_lengths
    measured = throughput.measure(config, plan.rows, train.recompute, counted, pair_lengths)
    seconds = measured.seconds(counted, train.accumulation_steps)
    tokens = planner.micro_tokens(config, pair_lengths) * train.accumulation_steps
    subject = "the model itself" if measured.whole else "a part of it"
    lines = [
        "\nwork",
        f"  a step            {counted.operations * train.accumulation_steps / 1e9:,.1f} GFLOP, "
        f"{tokens:,} tokens, {seconds:.3g} s",
        f"  speed here        {tokens / seconds:,.0f} tokens/s, {measured.rate / 1e9:,.0f} GFLOP/s "
        f"(measured on {subject})",
    ]
    if train.minutes is not None:
        steps = int(60 * train.minutes / seconds)
        lines.append(
            f"  {train.minutes:g} minutes{'':>{10 - len(f'{train.minutes:g}')}} {steps:,} steps, "
            f"{steps * tokens:,} tokens, {steps * tokens / counted.parameters:.2g} for each "
            f"parameter"
        )
        if steps == 0:
            lines.append("  not even one step is done in that time: a smaller batch or model")
    else:
        steps = train.steps or epoch_steps(config, places)
        lines.append(
            f"  to the end        {clock(steps * seconds)} for {steps:,} steps, evaluations "
            f"not counted"
        )
    return lines


def gpu_lines(config: RunConfig, gpus: int, gpu: Gpu, tokens: float | None) -> list[str]:
    """Memory of each GPU, days, and limits, for replicas (DDP) and shards (FSDP2)."""
    parameters = sum(p.numel() for p in outline(config.model).parameters())
    tokens = cluster.TOKENS_PER_PARAMETER * parameters if tokens is None else tokens
    ways: tuple[Literal["ddp", "fsdp2"], ...] = ("ddp", "fsdp2")
    plans = [cluster.estimate(config, gpus, way, gpu, tokens) for way in ways]
    if not any(each.rows for each in plans):
        raise ValueError(
            f"{config.model.name} does not fit on {gpus} GPUs of {format_bytes(gpu.memory)}, "
            f"sharded or not: use more (--gpus {2 * gpus}), larger ones (--gpu-memory), "
            f"or a shorter --model.length"
        )
    most = cluster.MAX_BATCH_TOKENS // config.model.length
    return [
        f"{config.model.name}: {parameters:,} parameters, {tokens:.3g} tokens "
        f"({tokens / parameters:.3g} for each), on {gpus} GPUs, estimated",
        f"assumed: {format_bytes(gpu.memory)} and {gpu.teraflops:g} TFLOP/s each, of which "
        f"training reaches {gpu.utilisation:.0%}; bfloat16 with float32 weights",
        *(line for each in plans for line in _distributed_lines(each, tokens)),
        f"\nlimits: a step of more than {cluster.MAX_BATCH_TOKENS:,} tokens is not planned, so "
        f"beyond {most:,} GPUs (one sequence each) more of them do not help without splitting "
        f"the model itself, which clearformer does not do",
    ]


def _distributed_lines(plan: ClusterEstimate, tokens: float) -> list[str]:
    way = {"ddp": "replicas (ddp)", "fsdp2": "sharded (fsdp2)"}[plan.distribute]
    if not plan.rows:
        return [
            f"\n{way}: does not fit; each GPU would need "
            f"{format_bytes(plan.memory)} for one sequence with every block recomputed"
        ]
    bandwidth = plan.traffic / plan.step_seconds
    return [
        f"\n{way}, recomputing {recompute.describe(plan.recompute)}",
        f"  on each GPU       {format_bytes(plan.memory)}: weights, gradients and optimizer "
        f"{format_bytes(plan.states)}, activations {format_bytes(plan.activations)} "
        f"({plan.rows} sequences), CUDA {format_bytes(cluster.CUDA_BYTES)}",
        f"  a step            {plan.step_tokens:,} tokens, {plan.step_seconds:.3g} s, "
        f"{format_bytes(plan.traffic)} sent by each GPU: hidden behind the work from "
        f"{format_bytes(bandwidth)}/s on",
        f"  in all            {tokens / plan.step_tokens:,.0f} steps, {plan.days:,.1f} days",
    ]
