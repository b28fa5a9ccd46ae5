"""Decoding speed of GPT-2 small and of a small model, compared with other libraries in one run.

    python benchmarks/decode.py [--rounds 3] [--threads 2] [--together] [--only NAME ...]

Random weights, the same for everyone; a prompt of 128 tokens and 64 new ones, greedy. Everyone
takes a turn in each round, so that a noisy machine is noisy for all; figures are medians, and
what is compared is the time of a new token: that of 65 tokens less that of 1, over 64. The share
of the bandwidth is the bytes of all weights over that time, over what summing up half a gigabyte
reads in the same rounds: as torch lays it down, and in large pages, where our weights are.
Memory is what a process of its own holds more after loading and writing than before. At the end
it is printed where the time goes (torch's profiler). CTranslate2 and llama.cpp take part if they
are installed; llama.cpp gets the same shape as a GGUF file, and keeps its keys in float16.

Each contestant has a process of its own, unless they are all put `--together` (turns.py).

`--cpu-time` counts the seconds that this process computes and not those that it waits for others:
with one thread that is the way to measure on a machine that is shared.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
import turns
from profiled import profile

from clearformer.builder import build, outline
from clearformer.config import GenerationDefaults
from clearformer.families import gpt2, modern
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import GenerationConfig
from clearformer.generate.stream import generate_many
from clearformer.inference import int4
from clearformer.inference.huge_pages import use_huge_pages
from clearformer.inference.int8 import quantize
from clearformer.inference.packed_linear import pack, use_fast_products

PROMPT, NEW, LONG = 128, 64, 1000
SHAPES = {
    "gpt2-small": gpt2("small"),
    # 12 layers of 768 as in Llama: rotary positions, RMS norms, gated, half as many key heads.
    "llama-100m": replace(
        modern("tiny"),
        vocabulary=32_000,
        length=1024,
        layers=12,
        width=768,
        heads=12,
        key_heads=6,
        hidden=2048,
        query_key_norm=None,
    ),
    "small": replace(gpt2("small"), vocabulary=256, length=256, width=256, heads=8, hidden=1024),
}
Write = Callable[[Sequence[Sequence[int]], int], None]  # prompts, how many new tokens


@dataclass
class Entry:
    """A library, and the seconds of one new token and of all."""

    name: str
    make: Callable[[], Write]
    few: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)

    @property
    def per_token(self) -> float:
        return (statistics.median(self.many) - statistics.median(self.few)) / NEW


def ours(shape: str, arrange: Callable[[Any], Any]) -> Write:
    config = SHAPES[shape]
    writer = LanguageModel(arrange(build(config).eval()), config, GenerationDefaults())

    def write(prompts: Sequence[Sequence[int]], new: int) -> None:
        list(
            generate_many(
                writer, prompts, GenerationConfig(sampling=Sampling(temperature=0), max_tokens=new)
            )
        )

    return write


def peer_model(shape: str) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = SHAPES[shape]
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocabulary,
            n_positions=config.length,
            n_embd=config.width,
            n_layer=config.layers,
            n_head=config.heads,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()


def hugging_face(shape: str) -> Write:
    model = peer_model(shape)

    def write(prompts: Sequence[Sequence[int]], new: int) -> None:
        tokens = torch.tensor(prompts)
        with torch.inference_mode():
            model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=new,
                min_new_tokens=new,
                do_sample=False,
                pad_token_id=0,
            )

    return write


def ctranslate2(shape: str, kind: str) -> Write:
    import ctranslate2
    from ctranslate2.converters.transformers import GPT2Loader

    model = peer_model(shape)
    # The loader asks for an activation by name, and a vocabulary that nobody will read.
    spec = GPT2Loader().get_model_spec(model)
    names = [str(i) for i in range(SHAPES[shape].vocabulary)]
    spec.register_vocabulary(names)
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "0"
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    folder = tempfile.TemporaryDirectory()
    spec.save(folder.name)
    generator = ctranslate2.Generator(
        folder.name, compute_type=kind, intra_threads=torch.get_num_threads()
    )

    def write(prompts: Sequence[Sequence[int]], new: int) -> None:
        generator.generate_batch(
            [[str(token) for token in prompt] for prompt in prompts],
            max_length=new,
            min_length=new,
            sampling_topk=1,
            include_prompt_in_result=False,
        )

    return write


def llama_cpp(shape: str, kind: Any, batch: int) -> Write:
    from llama_cpp_peer import LlamaCpp

    decode = LlamaCpp(SHAPES[shape], kind, batch, context=LONG + 24 if batch == 1 else 256)

    def write(prompts: Sequence[Sequence[int]], new: int) -> None:
        decode(prompts, new)

    return write


def compare(
    title: str, batch: int, contestants: Sequence[Entry], options: argparse.Namespace,
    new: int = NEW, prompt: int = PROMPT, weights: int = 0,
) -> None:  # fmt: skip
    torch.manual_seed(0)
    prompts = torch.randint(1, 256, (batch, prompt)).tolist()
    present = [(each, turns.Contestant(each.make, options)) for each in contestants]
    for _, there in present:  # warm up
        there.ask(prompts, 2)
    bandwidths = []
    usual = torch.ones(2**27)
    large = next(use_huge_pages(torch.nn.ParameterList([torch.ones(2**27)])).parameters()).detach()
    for turn in range(options.rounds):
        bandwidths.append([read_bandwidth(each, options.cpu_time) for each in (usual, large)])
        first = turn % len(present)
        for each, there in (*present[first:], *present[:first]):
            each.few.append(there.ask(prompts, 1)[0])
            if new > 1:
                each.many.append(there.ask(prompts, new + 1)[0])
    for _, there in present:
        there.end()
    reads = [statistics.median(each) for each in zip(*bandwidths, strict=True)]
    print(f"\n{title} (bandwidth {reads[0] / 1e9:.1f} GB/s, {reads[1] / 1e9:.1f} in large pages)")
    mine = contestants[0]
    peers = [each for each in contestants if not each.name.startswith(mine.name)]
    for each in contestants:
        if new > 1:
            rate, unit = batch / each.per_token, "tokens/s"
            used = weights / each.per_token
            share = f"  {used / reads[0]:.0%} / {used / reads[1]:.0%} of it" if weights else ""
            ratio = each.per_token / mine.per_token
        else:
            rate, unit = prompt / statistics.median(each.few), "tokens/s read"
            share, ratio = "", statistics.median(each.few) / statistics.median(mine.few)
        print(f"  {each.name:24}{rate:9.1f} {unit}{share}   ours is {ratio:.2f}x")
    if peers and new > 1:
        best = min(each.per_token for each in peers)
        print(f"  ours is {best / mine.per_token:.2f}x the fastest peer")
    elif peers:
        best = min(statistics.median(each.few) for each in peers)
        print(f"  ours is {best / statistics.median(mine.few):.2f}x the fastest peer")


def read_bandwidth(numbers: torch.Tensor, cpu_time: bool) -> float:
    """Memory bandwidth in bytes per second, measured by a sum."""

    def read() -> None:
        numbers.sum()

    ask = turns.timed(read, cpu_time)
    return numbers.numel() * 4 / min(ask()[0] for _ in range(5))


def resident() -> int:
    """Bytes of memory that this process holds (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def memory() -> None:
    """Measured in a separate process, since memory freed by others would be reused."""
    subprocess.run([sys.executable, __file__, "--held"], check=True)


def held() -> None:
    ours("small", use_fast_products)(
        [[1, 2]], 2
    )  # what libraries hold for themselves is not the model's
    before = resident()
    write = ours("gpt2-small", use_fast_products)
    write(torch.randint(1, 256, (1, PROMPT)).tolist(), NEW)
    config = SHAPES["gpt2-small"]
    weights = 4 * sum(p.numel() for p in outline(config).parameters())
    cache = 2 * 4 * config.layers * config.width * (PROMPT + NEW)
    share = (resident() - before) / (weights + cache)
    sizes = f"weights {weights / 1e6:.0f} MB, cache {cache / 1e6:.0f} MB"
    print(f"\nmemory: {sizes}, held {share:.2f}x")


def where_time_goes() -> None:
    """Shares of 64 new tokens, for each arrangement of the weights."""
    torch.manual_seed(0)
    for title, shape, arrange, batch in (
        ("GPT-2 small, float32, batch 1", "gpt2-small", use_fast_products, 1),
        ("GPT-2 small, int8, batch 1", "gpt2-small", quantize, 1),
        ("GPT-2 small, float32, batch 8", "gpt2-small", partial(pack, rows=8), 8),
        ("width 256, depth 12, bytes, batch 1", "small", use_fast_products, 1),
    ):
        write = ours(shape, arrange)
        prompts = torch.randint(1, 256, (batch, PROMPT)).tolist()
        profile(title, partial(write, prompts, NEW))


GGUF = {"float32": "f32", "int8": "q8_0", "int4": "q4_0"}


def peers(shape: str, kind: str = "float32", batch: int = 1) -> list[Entry]:
    found = []
    is_gpt2 = shape != "llama-100m"
    if kind == "float32" and is_gpt2:
        found.append(Entry("transformers", partial(hugging_face, shape)))
    if kind != "int4" and is_gpt2:
        if find_spec("ctranslate2") is None:
            print("CTranslate2 is not installed: without it")
        else:
            found.append(Entry(f"CTranslate2 {kind}", partial(ctranslate2, shape, kind)))
    if find_spec("llama_cpp") is None:
        print("llama.cpp is not installed: without it")
    else:
        make = partial(llama_cpp, shape, GGUF[kind], batch)
        found.append(Entry(f"llama.cpp {GGUF[kind]}", make))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    turns.options(parser, rounds=3)
    parser.add_argument("--held", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--only",
        nargs="*",
        default=["one", "prefill", "int8", "int4", "eight", "llama", "small", "memory", "profile"],
    )
    arguments = parser.parse_args()
    if arguments.held:
        held()
        return
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    apart = "one process" if arguments.together else "a process each"
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {apart}", end=", ")
    print(f"medians of {arguments.rounds} rounds", flush=True)
    weights = 4 * sum(p.numel() for p in outline(SHAPES["gpt2-small"]).parameters())

    meet = partial(compare, options=arguments)
    mine = partial(ours, "gpt2-small")
    if "one" in arguments.only:
        everyone = [Entry("clearformer", partial(mine, use_fast_products)), *peers("gpt2-small")]
        meet("GPT-2 small, float32, batch 1", 1, everyone, weights=weights)
    if "prefill" in arguments.only:
        everyone = [Entry("clearformer", partial(mine, use_fast_products)), *peers("gpt2-small")]
        meet(f"GPT-2 small, float32, a prompt of {LONG}", 1, everyone, new=1, prompt=LONG)
    if "int8" in arguments.only:
        everyone = [
            Entry("clearformer int8", partial(mine, quantize)),
            *peers("gpt2-small", "int8"),
        ]
        meet("GPT-2 small, int8, batch 1", 1, everyone, weights=weights // 4)
    if "int4" in arguments.only:
        everyone = [
            Entry("clearformer int4", partial(mine, int4.quantize)),
            *peers("gpt2-small", "int4"),
        ]
        meet("GPT-2 small, int4, batch 1", 1, everyone)
    if "llama" in arguments.only:
        for kind, arrange in (
            ("float32", use_fast_products), ("int8", quantize), ("int4", int4.quantize)
        ):  # fmt: skip
            own = Entry(f"clearformer {kind}", partial(ours, "llama-100m", arrange))
            meet(f"Llama shape, {kind}, batch 1", 1, [own, *peers("llama-100m", kind)])
    if "eight" in arguments.only:
        everyone = [
            Entry("clearformer", partial(mine, partial(pack, rows=8))),
            *peers("gpt2-small", batch=8),
        ]
        meet("GPT-2 small, float32, batch 8", 8, everyone)
    if "small" in arguments.only:
        everyone = [
            Entry("clearformer", partial(ours, "small", use_fast_products)),
            *peers("small"),
        ]
        everyone.append(Entry("clearformer int8", partial(ours, "small", quantize)))
        meet("width 256, depth 12, bytes, batch 1", 1, everyone)
    if "memory" in arguments.only:
        memory()
    if "profile" in arguments.only:
        where_time_goes()


if __name__ == "__main__":
    main()
