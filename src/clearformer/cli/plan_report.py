"""The report of `clearformer plan`: memory, work, and cluster estimates."""

from __future__ import annotations

from typing import Literal

from clearformer.builder import outline
from clearformer.config import RunConfig
from clearformer.plan import cluster
from clearformer.plan.cluster import ClusterEstimate, Gpu
from clearformer.plan.planner import Plan
from clearformer.plan.summary import Work, memory_figures, score_table
from clearformer.runs.progress import clock
from clearformer.training import recompute
from clearformer.training.memory import format_bytes


def memory_lines(plan: Plan, limit: int | None) -> list[str]:
    """Memory by part, and that of stored attention scores (eq. 28)."""
    model, counted, train = plan.config.model, plan.counted, plan.config.train
    found, cached = memory_figures(plan), model.memory or 0
    of = "" if limit is None else f" of {format_bytes(limit)}"
    parts = ("weights", "gradients", "optimizer", *(("average",) if found["average"] else ()))
    return [
        f"{model.name}: {counted.parameters:,} parameters",
        "",
        f"memory, {plan.rows} at a time, in {train.precision}, recomputing "
        f"{recompute.describe(train.recompute)}",
        *(f"  {part:17} {format_bytes(found[part]):>10}" for part in parts),
        f"  activations       {format_bytes(found['activations']):>10}   (left by the forward "
        f"pass: {format_bytes(counted.kept)})",
        f"  Python and torch  {format_bytes(found['base']):>10}",
        f"  in all            {format_bytes(found['total']):>10}{of}",
        f"  tables of scores  {format_bytes(found['scores']):>10}   if they were kept: "
        f"4 × {model.layers} layers × {format_bytes(score_table(plan))} "
        f"({model.length} × {model.length + cached}, {model.heads} heads)",
    ]


def work_lines(plan: Plan, found: Work) -> list[str]:
    """Operations, measured throughput, and the time or steps of the budget."""
    train, tokens = plan.config.train, found.step_tokens
    subject = "the model itself" if found.whole_model else "a part of it"
    lines = [
        "",
        "work",
        f"  a step            {found.step_operations / 1e9:,.1f} GFLOP, {tokens:,} tokens, "
        f"{found.step_seconds:.3g} s",
        f"  speed here        {tokens / found.step_seconds:,.0f} tokens/s, "
        f"{found.operations_per_second / 1e9:,.0f} GFLOP/s (measured on {subject})",
    ]
    if train.minutes is not None:
        each = found.steps * tokens / plan.counted.parameters
        lines.append(
            f"  {f'{train.minutes:g} minutes':17} {found.steps:,} steps, "
            f"{found.steps * tokens:,} tokens, {each:.2g} for each parameter"
        )
        if found.steps == 0:
            lines.append("  not even one step is done in that time: a smaller batch or model")
    else:
        lines.append(
            f"  to the end        {clock(found.seconds)} for {found.steps:,} steps, evaluations "
            f"not counted"
        )
    return lines


def gpu_estimates(
    config: RunConfig, gpus: int, gpu: Gpu, tokens: float | None
) -> tuple[int, float, list[ClusterEstimate]]:
    """Parameters, tokens, and the estimates for replicas (DDP) and shards (FSDP2)."""
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
    return parameters, tokens, plans


def gpu_lines(config: RunConfig, gpus: int, gpu: Gpu, tokens: float | None) -> list[str]:
    """Memory of each GPU, days, and limits, for replicas (DDP) and shards (FSDP2)."""
    parameters, tokens, plans = gpu_estimates(config, gpus, gpu, tokens)
    most = cluster.MAX_BATCH_TOKENS // config.model.length
    return [
        f"{config.model.name}: {parameters:,} parameters, {tokens:.3g} tokens "
        f"({tokens / parameters:.3g} for each), on {gpus} GPUs, estimated",
        f"assumed: {format_bytes(gpu.memory)} and {gpu.teraflops:g} TFLOP/s each, of which "
        f"training reaches {gpu.utilisation:.0%}; bfloat16 with float32 weights",
        *(line for each in plans for line in _distributed_lines(each, tokens)),
        "",
        f"limits: a step of more than {cluster.MAX_BATCH_TOKENS:,} tokens is not planned, so "
        f"beyond {most:,} GPUs (one sequence each) more of them do not help without splitting "
        f"the model itself, which clearformer does not do",
    ]


def _distributed_lines(plan: ClusterEstimate, tokens: float) -> list[str]:
    way = {"ddp": "replicas (ddp)", "fsdp2": "sharded (fsdp2)"}[plan.distribute]
    if not plan.rows:
        return [
            "",
            f"{way}: does not fit; each GPU would need "
            f"{format_bytes(plan.memory)} for one sequence with every block recomputed",
        ]
    bandwidth = plan.traffic / plan.step_seconds
    return [
        "",
        f"{way}, recomputing {recompute.describe(plan.recompute)}",
        f"  on each GPU       {format_bytes(plan.memory)}: weights, gradients and optimizer "
        f"{format_bytes(plan.states)}, activations {format_bytes(plan.activations)} "
        f"({plan.rows} sequences), CUDA {format_bytes(cluster.CUDA_BYTES)}",
        f"  a step            {plan.step_tokens:,} tokens, {plan.step_seconds:.3g} s, "
        f"{format_bytes(plan.traffic)} sent by each GPU: hidden behind the work from "
        f"{format_bytes(bandwidth)}/s on",
        f"  in all            {tokens / plan.step_tokens:,.0f} steps, {plan.days:,.1f} days",
    ]
