"""One optimizer step of the source document's generator, compared with three libraries.

    python benchmarks/train_step.py [--rounds 12] [--eager-only]

12 blocks, width 256, 8 heads, length 256, 256 tokens of vocabulary, batch 8, float32, AdamW.
Everyone has ReLU, learned positions, no dropout, and the same optimizer and loss; the peers
keep their own way of computing the block. Contestants take turns, one step each a round, so
that a noisy machine is noisy for all of them; figures are medians over the rounds.

The share of the matmul rate is (6 x parameters in matrices + 12 x layers x width x length) x
tokens / seconds, the usual count of a training step, over what torch.mm reaches on square
float32 matrices in the same rounds.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.builder import build
from clearformer.families import generator

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY, BATCH = 12, 256, 8, 256, 256, 8
MATRIX = 1024  # side of the square matrices that the machine's own rate is read from

Logits = Callable[[Tensor], Tensor]


class TorchEncoder(nn.Module):
    """torch.nn.TransformerEncoder behind a causal mask, as a generator."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="relu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight
        logits: Tensor = self.head(self.encoder(x, mask=self.mask, is_causal=True))
        return logits


def ours() -> tuple[nn.Module, Logits]:
    model = build(generator("enwik8"))
    return model, model


def hugging_face() -> tuple[nn.Module, Logits]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        activation_function="relu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    model = GPT2LMHeadModel(config)
    return model, lambda tokens: model(tokens).logits


def x_transformers() -> tuple[nn.Module, Logits]:
    from x_transformers import Decoder, TransformerWrapper

    model = TransformerWrapper(
        num_tokens=VOCABULARY,
        max_seq_len=LENGTH,
        attn_layers=Decoder(
            dim=WIDTH,
            depth=LAYERS,
            heads=HEADS,
            attn_dim_head=WIDTH // HEADS,
            attn_flash=True,
            ff_custom_activation=nn.ReLU(),
        ),
    )
    return model, model


def torch_encoder() -> tuple[nn.Module, Logits]:
    model = TorchEncoder()
    return model, model


@dataclass
class Contestant:
    name: str
    step: Callable[[], float]  # runs once, returns the loss
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def contestant(
    name: str, make: Callable[[], tuple[nn.Module, Logits]], compiled: bool
) -> Contestant:
    torch.manual_seed(0)
    model, logits = make()
    model.train()
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    targets = torch.randint(VOCABULARY, (BATCH, LENGTH))

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return Contestant(name, step, [])


def matmul() -> Contestant:
    a, b = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
    return Contestant("matmul", lambda: (a @ b)[0, 0].item(), [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--eager-only", action="store_true")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")

    makers = {
        "clearformer": ours,
        "transformers GPT-2": hugging_face,
        "x-transformers": x_transformers,
        "nn.TransformerEncoder": torch_encoder,
    }
    modes = {"eager": False} if arguments.eager_only else {"eager": False, "compiled": True}
    contestants = {
        (name, mode): contestant(f"{name}, {mode}", make, compiled)
        for mode, compiled in modes.items()
        for name, make in makers.items()
    }
    square = matmul()
    everyone = [*contestants.values(), square]
    for each in everyone:  # warm up, and compile
        for _ in range(2):
            each.step()
    for turn in range(arguments.rounds):
        first = turn % len(everyone)  # nobody always follows the same neighbour
        for each in everyone[first:] + everyone[:first]:
            repeats = 8 if each is square else 1
            start = time.perf_counter()
            for _ in range(repeats):
                each.step()
            each.seconds.append((time.perf_counter() - start) / repeats)

    rate = 2 * MATRIX**3 / square.median
    matrices = LAYERS * 12 * WIDTH**2 + WIDTH * VOCABULARY
    work = (6 * matrices + 12 * LAYERS * WIDTH * LENGTH) * BATCH * LENGTH
    peers = [name for name in makers if name != "clearformer"]
    fastest = min(contestants[name, "eager"].median for name in peers)
    mine = {mode: contestants["clearformer", mode].median for mode in modes}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", end=", ")
    print(f"matmul {rate / 1e9:.0f} GFLOP/s, medians of {arguments.rounds} rounds\n")
    print(f"{'':34}{'seconds':>9}{'tokens/s':>10}{'of matmul':>11}{'ours is':>9}")
    for (_, mode), each in contestants.items():
        share = work / each.median / rate
        print(
            f"{each.name:34}{each.median:9.3f}{BATCH * LENGTH / each.median:10.0f}"
            f"{share:11.0%}{each.median / mine[mode]:8.2f}x"
        )
    print()
    for mode, seconds in mine.items():
        print(f"clearformer {mode}: {fastest / seconds:.2f}x the fastest peer, eager")
    if "compiled" in mine:
        rival = min(contestants[name, "compiled"].median for name in peers)
        print(f"clearformer compiled: {rival / mine['compiled']:.2f}x the fastest peer, compiled")


if __name__ == "__main__":
    main()
