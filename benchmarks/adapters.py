"""A training step with an adapter beside PEFT's: time and memory.

    python benchmarks/adapters.py [--rounds 20] [--threads 2] [--cpu-time]

A GPT-2 of 6 blocks, width 384, 8 heads, length 256, 4,096 tokens of vocabulary, batch 8, float32,
AdamW; LoRA and DoRA of rank 8 on every matrix of the blocks, without dropout. Three contestants,
with the same weights:

- clearformer,
- PEFT on the same modules: its layers in the place of ours, everything else ours,
- PEFT on transformers' GPT-2 (sdpa), with the loss over all logits.

They take turns, one step each a round; a ratio is the median over the rounds, with its quartiles.
Memory is the largest sum of live tensors in a step besides the model's own weights, counted for
each allocation by `plan`'s counter, so it does not depend on the allocator. The three losses are
compared first: all must be the same function.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import clearformer as cf
from clearformer.adapters.attach import attach
from clearformer.core.model import Batch
from clearformer.hub.gpt2 import GPT2
from clearformer.hub.tensor_names import their_names
from clearformer.plan.footprint import MemoryCounter

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY, BATCH, RANK = 6, 384, 8, 256, 4096, 8, 8
MATRICES = r".*blocks.*\.(project|output|up|down)"
Step = Callable[[], float]


def config() -> cf.config.ModelConfig:
    return replace(
        cf.families.gpt2("small"),
        vocabulary=VOCABULARY, length=LENGTH, layers=LAYERS, width=WIDTH, heads=HEADS,
        hidden=4 * WIDTH, dropout=cf.config.Dropout(),
    )  # fmt: skip


def base() -> nn.Module:
    return cf.build(config(), seed=0)


def example() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(VOCABULARY, (2, BATCH, LENGTH), generator=generator)
    return ids[0], ids[1]


def our_loss(model: Any) -> Callable[[], Tensor]:
    tokens, targets = example()
    batch = Batch(tokens, targets)

    def loss() -> Tensor:
        sums, counts = model.loss(batch)
        return (sums / counts).sum()

    return loss


def clearformer(dora: bool) -> tuple[nn.Module, Callable[[], Tensor]]:
    kind = cf.DoRA if dora else cf.LoRA
    model = attach(base(), kind(rank=RANK, alpha=16.0, targets="qkv,o,up,down"), seed=0)
    return model, our_loss(model)


def peft_on_ours(dora: bool) -> tuple[nn.Module, Callable[[], Tensor]]:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=RANK, lora_alpha=16, use_dora=dora, target_modules=MATRICES)
    model = get_peft_model(base(), settings)
    return model, our_loss(model.base_model.model)


def peft_on_transformers(dora: bool) -> tuple[nn.Module, Callable[[], Tensor]]:
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=None,
            eos_token_id=None, attn_implementation="sdpa",
        )
    )  # fmt: skip
    tensors: dict[str, Tensor] = {}
    for name, parameter in base().named_parameters():
        names, layout = their_names(GPT2.renames(config()), name)
        tensors |= dict(zip(names, layout.split(parameter.detach(), config()), strict=True))
    theirs.load_state_dict(tensors, strict=False)
    settings = LoraConfig(
        r=RANK, lora_alpha=16, use_dora=dora, fan_in_fan_out=True,
        target_modules=["c_attn", "c_proj", "c_fc"],
    )  # fmt: skip
    model = get_peft_model(theirs, settings)
    tokens, targets = example()

    def loss() -> Tensor:
        return F.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())

    return model, loss


PEERS = {
    "clearformer": clearformer,
    "PEFT, same modules": peft_on_ours,
    "PEFT, transformers": peft_on_transformers,
}


def contestant(make: Callable[[bool], tuple[nn.Module, Callable[[], Tensor]]], dora: bool) -> Step:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, loss = make(dora)
    model.train()
    learning = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-4, fused=True)

    def step() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.item()

    return step


def peak_bytes(step: Step) -> int:
    """The most memory of live tensors that one step allocates."""
    with MemoryCounter() as counter:
        before = counter.now
        counter.highest = before
        step()
        return counter.highest - before


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu-time", action="store_true", help="seconds of computing only")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    for dora in (False, True):
        steps = {name: contestant(make, dora) for name, make in PEERS.items()}
        losses = [step() for step in steps.values()]
        assert max(losses) - min(losses) < 1e-4, losses
        memory = {name: peak_bytes(step) for name, step in steps.items()}
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(options.rounds):
            for name, step in steps.items():
                start = clock()
                step()
                seconds[name].append(clock() - start)
        ours = seconds["clearformer"]
        print(f"{'DoRA' if dora else 'LoRA'}, loss {losses[0]:.4f}")
        for name, theirs in seconds.items():
            ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(
                f"  {name:20} {statistics.median(theirs) * 1e3:8.1f} ms   ours/theirs "
                f"{middle:.3f} ({low:.3f} to {high:.3f})   {memory[name] / 2**20:8.1f} MiB   "
                f"ours/theirs {memory['clearformer'] / memory[name]:.3f}"
            )


if __name__ == "__main__":
    main()
