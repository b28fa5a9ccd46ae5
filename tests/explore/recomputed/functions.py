"""The functions of the expressions in `data-source`."""

import dataclasses
import lzma
import math

import torch


def tensor(x):
    return x.double() if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.double)


def total(x):
    return float(tensor(x).sum())


def largest(x):
    return float(tensor(x).max())


def most(x):
    """The largest finite number without its sign."""
    x = tensor(x)
    return float(x[x.isfinite()].abs().max())


def softmax(x):
    return tensor(x).softmax(-1)


def entropy(x):
    x = tensor(x)
    return float(-(x * x.clamp(min=1e-300).log2()).sum())


def greedy(x):
    out = torch.zeros(len(x), dtype=torch.double)
    out[int(x.argmax())] = 1
    return out


def kept(logits, temperature, top_k, top_p):
    """The probabilities that a token is drawn with, 0 for those removed."""
    p = greedy(logits) if temperature == 0 else softmax(logits / temperature)
    order = sorted(range(len(p)), key=lambda id: (-float(p[id]), id))[: top_k or None]
    if top_p < 1:
        shares = (p[order] / p[order].sum()).cumsum(0)
        order = order[: int((shares < top_p).sum()) + 1]
    out = torch.zeros_like(p)
    out[order] = p[order] / p[order].sum()
    return out


def interval(p, chosen):
    before = [id for id in range(len(p)) if (-p[id], id) < (-p[chosen], chosen)]
    low = float(p[before].sum())
    return [low, low + float(p[chosen])]


def smoothed(curve, share):
    mean, out = None, {}
    for step, value in curve.items():
        mean = value if mean is None else share * mean + (1 - share) * value
        out[step] = mean
    return out


def numbers(pattern):
    """The sizes in a pattern, in the order in which it is written."""
    fields = [getattr(pattern, field.name) for field in dataclasses.fields(pattern)]
    return [n for each in fields for n in ([each] if isinstance(each, int) else numbers(each))]


def rescaled(row, fixed):
    """A row of weights with some of them set, and the others scaled so that it sums to 1."""
    row = tensor(row).clone()
    others = [n for n in range(len(row)) if n not in fixed]
    row[others] *= (1 - sum(fixed.values())) / float(row[others].sum())
    for n, weight in fixed.items():
        row[n] = weight
    return row


def progress(curve):
    """The last loss, its change over a hundred steps, and how many steps these were."""
    steps = list(curve)
    before = [step for step in steps if step <= steps[-1] - 100] or steps[:1]
    if before[-1] == steps[-1]:
        return [curve[steps[-1]], steps[-1]]
    return [curve[steps[-1]], abs(curve[steps[-1]] - curve[before[-1]]), steps[-1] - before[-1]]


FUNCTIONS = {
    "sum": total, "max": largest, "min": min, "most": most,
    "mean": lambda x: float(tensor(x).mean()),
    "softmax": softmax, "entropy": entropy, "greedy": greedy, "kept": kept, "interval": interval,
    "norm": lambda x: float(tensor(x).norm()), "exp": lambda x: tensor(x).exp(),
    "sqrt": math.sqrt, "ceil": math.ceil, "smoothed": smoothed, "progress": progress,
    "numbers": numbers,
    "rescaled": rescaled, "shape": lambda layers: list(layers[0].shape), "len": len, "abs": abs,
    "xz": lambda text: len(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)),
    "rank": lambda p, id: int((p > p[id]).sum()),
}  # fmt: skip
