"""Memory and time of a training step with each memory-saving technique, and of two other libraries.

    python benchmarks/memory.py [--rounds 5] [--rows 4] [--precisions float32 bfloat16]

12 blocks, width 256, 8 heads, length 512, 256 tokens of vocabulary, 4 sequences, no dropout,
AdamW. The peers are a plain PyTorch model of the same sizes, written by hand, and Hugging Face's
GPT-2, each with its own switch for activation checkpointing (every block).

Memory is counted, not sampled: every tensor that an operation makes is added up until it is
freed (`clearformer.plan.footprint.MemoryCounter`), on real tensors, for all alike. "Activations"
is the highest sum within a step beyond weights, gradients and optimizer. Time is CPU time of
the step without the counting; contestants take turns, medians over the rounds.

The second table is the loss over 50,257 words alone: 2,048 rows of width 256.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clearformer.builder import build
from clearformer.config import Dropout
from clearformer.core.heads import at_once
from clearformer.core.model import Batch
from clearformer.families import gpt2
from clearformer.kernels.vocabulary_loss import in_chunks
from clearformer.plan.footprint import MemoryCounter
from clearformer.training import precision, recompute
from clearformer.training.loss_scaling import loss_scaling_for
from clearformer.training.recompute import Recompute

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY = 12, 256, 8, 512, 256
WORDS = 50_257
CPU = torch.device("cpu")
Loss = Callable[[Tensor], Tensor]


class PlainBlock(nn.Module):
    """GPT-2's block in plain PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        hidden = F.gelu(self.up(self.norms[1](x)), approximate="tanh")
        result: Tensor = x + self.down(hidden)
        return result


class Plain(nn.Module):
    """The whole model, optionally with torch's checkpointing around each block."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.again = again

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def mean(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


def ours(what: Recompute) -> tuple[nn.Module, Loss]:
    config = replace(
        gpt2(),
        layers=LAYERS,
        width=WIDTH,
        heads=HEADS,
        hidden=4 * WIDTH,
        length=LENGTH,
        vocabulary=VOCABULARY,
        dropout=Dropout(),
    )
    model = build(config).train()
    recompute.apply(model, what)

    def loss(tokens: Tensor) -> Tensor:
        sums, counts = model.loss(Batch(tokens, tokens))  # type: ignore[arg-type]
        return (sums / counts).sum()

    return model, loss


def plain(what: Recompute) -> tuple[nn.Module, Loss]:
    model = Plain(again=what == 1).train()
    return model, lambda tokens: mean(model(tokens), tokens)


def hugging_face(what: Recompute) -> tuple[nn.Module, Loss]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    model = GPT2LMHeadModel(config).train()
    if what == 1:
        model.gradient_checkpointing_enable()
    return model, lambda tokens: mean(model(tokens).logits, tokens)


@dataclass
class Contestant:
    name: str
    half: precision.Precision
    what: Recompute
    parts: int  # micro-batches
    rows: int
    make: Callable[[Recompute], tuple[nn.Module, Loss]]
    seconds: list[float] = field(default_factory=list)
    activations: int = 0
    loss: float = 0.0

    def start(self) -> None:
        torch.manual_seed(0)
        self.model, loss = self.make(self.what)
        self.weigh: Any = precision.autocast_loss(loss, self.half, CPU)  # type: ignore[arg-type]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.scaling = loss_scaling_for(self.half, CPU)
        self.tokens = torch.randint(VOCABULARY, (self.rows, LENGTH))

    def step(self, keep: bool = False) -> None:
        self.optimizer.zero_grad(set_to_none=not keep)
        total = 0.0
        for part in self.tokens.chunk(self.parts):
            loss = self.weigh(part) / self.parts
            self.scaling.scale_loss(loss).backward()
            total += loss.item()
        self.scaling.unscale([self.optimizer])
        self.scaling.overflowed()
        self.optimizer.step()
        self.loss = total

    def count(self) -> None:
        # Gradients are there before, and filled in place: what is new is activations.
        there = [t for p in self.model.parameters() for t in (p, p.grad) if t is not None]
        there += [t for slots in self.optimizer.state.values() for t in slots.values()]
        self.activations = highest(there, lambda: self.step(keep=True))


def highest(there: list[Tensor], do: Callable[[], None]) -> int:
    """Peak bytes of live tensors, beyond those that existed before."""
    with MemoryCounter() as counter:
        for tensor in there:
            counter.note(tensor.untyped_storage())
        before = counter.now
        do()
    return counter.highest - before


def vocabulary_table() -> list[str]:
    """Largest sum of live tensors and CPU time of the loss alone, forward and backward."""
    ways: dict[str, Callable[[nn.Linear, Tensor, Tensor], Tensor]] = {
        "all logits at once": lambda p, x, t: at_once(p, x, t, 0.0, None)[0],
        "clearformer, in chunks": lambda p, x, t: in_chunks(p, x, t, 0.0, None)[0],
    }
    if hasattr(F, "linear_cross_entropy"):
        options = nn.LinearCrossEntropyOptions()
        ways["torch linear_cross_entropy"] = lambda p, x, t: F.linear_cross_entropy(
            x, p.weight, t, reduction="sum", options=options
        )
    project = nn.Linear(WIDTH, WORDS, bias=False)
    rows, targets = torch.randn(2048, WIDTH), torch.randint(WORDS, (2048,))
    logits = 4 * len(rows) * WORDS
    lines = [
        f"\n{WORDS:,} words, {len(rows):,} rows (a table of logits: {logits / 1e6:.0f} MB)",
        f"{'':34}{'peak MB':>9}{'tables':>8}{'CPU s':>8}",
    ]
    for name, way in ways.items():
        x = rows.clone().requires_grad_()
        taken: list[float] = []

        def learn(way: Any = way, x: Tensor = x, taken: list[float] = taken) -> None:
            project.weight.grad, start = None, time.process_time()
            way(project, x, targets).sum().backward()
            taken.append(time.process_time() - start)

        most = highest([project.weight, x, targets], learn)
        learn()
        lines.append(f"{name:34}{most / 1e6:9.0f}{most / logits:8.2f}{taken[-1]:8.2f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    everyone, rows = [], arguments.rows
    for half in arguments.precisions:
        own: tuple[Recompute, ...] = (None, "attention", 2, 1)
        everyone += [Contestant("clearformer", half, what, 1, rows, ours) for what in own]
        if rows > 1:
            everyone.append(Contestant("clearformer", half, 1, 2, rows, ours))
        for name, make in (("plain PyTorch", plain), ("transformers GPT-2", hugging_face)):
            everyone += [Contestant(name, half, what, 1, rows, make) for what in (None, 1)]
    for each in everyone:
        each.start()
        each.step()
        each.count()
    for turn in range(arguments.rounds):
        first = turn % len(everyone)
        for each in everyone[first:] + everyone[:first]:
            start = time.process_time()
            each.step()
            each.seconds.append(time.process_time() - start)
    for line in vocabulary_table():
        print(line)
    print(f"\ntorch {torch.__version__}, {torch.get_num_threads()} threads, medians of "
          f"{arguments.rounds} rounds\n")  # fmt: skip
    print(f"{'':20}{'precision':>10}{'recomputed':>16}{'parts':>6}{'activations':>13}{'':>7}"
          f"{'CPU s':>8}{'':>7}")  # fmt: skip
    for each in everyone:
        same = [e for e in everyone if (e.name, e.half) == (each.name, each.half)]
        base = next(e for e in same if e.what is None and e.parts == 1)
        seconds = statistics.median(each.seconds)
        memory = each.activations / base.activations - 1
        slower = seconds / statistics.median(base.seconds) - 1
        print(
            f"{each.name:20}{each.half:>10}{recompute.describe(each.what):>16}{each.parts:>6}"
            f"{each.activations / 1e6:>10.1f} MB{memory:>+7.0%}{seconds:>8.2f}{slower:>+7.0%}"
        )


if __name__ == "__main__":
    main()
