"""Profile of a function by kind of operation, with torch's profiler."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as record

WHOLE = "clearformer"  # what is no operation of torch is Python, and counted under this name
KINDS = {
    "matrix products": ("mm", "linear", "gemm", "bmm"),
    "attention": ("scaled_dot_product", "flash_attention"),
    "norms": ("layer_norm", "rms_norm"),
    "softmax and search": ("softmax", "topk", "sort", "amax", "max", "gather"),
    "moving and copying": ("copy", "cat", "index", "clone", "contiguous", "fill", "zero"),
}


def profile(title: str, function: Callable[[], object]) -> None:
    """Print the share of each kind of operation, and that of Python overhead."""
    function()
    with record(activities=[ProfilerActivity.CPU]) as found, record_function(WHOLE):
        function()
    events = [
        each
        for each in found.key_averages()
        if each.key.startswith(("aten::", "mkldnn", "quantized"))
    ]
    total = found.profiler.self_cpu_time_total  # microseconds, profiling included
    shares: dict[str, float] = {}
    for event in events:
        kind = next(
            (kind for kind, words in KINDS.items() if any(word in event.key for word in words)),
            "other operations",
        )
        shares[kind] = shares.get(kind, 0.0) + event.self_cpu_time_total
    calls = sum(event.count for event in events)
    print(f"\nwhere the time of {title} goes ({calls:,} operations, with the profiler's own cost)")
    for kind, spent in sorted(shares.items(), key=lambda item: -item[1]):
        print(f"  {kind:22}{spent / total:6.1%}")
    print(f"  {'Python in between':22}{1 - sum(shares.values()) / total:6.1%}")
