"""The tools of `clearformer.interpretability` beside TransformerLens, on the same GPT-2 weights.

    python benchmarks/lens.py [--layers 12 --width 768 --heads 12] [--tokens 16] [--rounds 3]

The weights are random, in GPT-2's shape, or those of `--folder`; TransformerLens wraps the
Hugging Face model, clearformer loads the folder that it saves. The first table has the largest
difference of each result, the second the time of TransformerLens over that of clearformer,
measured in turns in one process. Needs the extra `bench`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import clearformer as cf
from clearformer.interpretability import (
    ablate,
    direct_logit_attribution,
    logit_difference,
    patch,
    previous_token_scores,
)
from clearformer.interpretability.head_scores import _scores
from clearformer.interventions import head, residual

RIGHT, WRONG = 11, 22


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="a Hugging Face folder of GPT-2")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    quiet_bars()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        folder = asked.folder or write_random(Path(place), asked)
        ours, theirs = cf.load(folder), bridge(folder)
        processed = bridge(folder, processing=True)
    with torch.no_grad():
        compare(ours, theirs, processed, asked)


def quiet_bars() -> None:
    """Without the progress bars of their patching."""
    from transformer_lens import patching

    if hasattr(patching, "tqdm"):
        patching.tqdm = partial(patching.tqdm, disable=True)


def write_random(folder: Path, asked: argparse.Namespace) -> Path:
    """A GPT-2 with weights large enough that heads attend unevenly."""
    import transformers
    from tokenizers import Tokenizer, models

    config = transformers.GPT2Config(
        n_layer=asked.layers, n_head=asked.heads, n_embd=asked.width,
        vocab_size=asked.vocabulary, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    for name, parameter in model.named_parameters():
        if "ln" not in name:
            torch.nn.init.normal_(parameter, std=0.06)
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(i): i for i in range(asked.vocabulary)}, "0"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="0", eos_token="0"
    )
    tokenizer.save_pretrained(folder / "tokenizer")
    return folder


def bridge(folder: Path, processing: bool = False) -> Any:
    """TransformerLens around the same weights; with its processing, norms are folded."""
    import transformers
    from transformer_lens.model_bridge import TransformerBridge

    model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
    own = folder / "tokenizer"
    tokenizer = transformers.AutoTokenizer.from_pretrained(own if own.exists() else folder)
    made = TransformerBridge.boot_transformers(
        str(folder), hf_model=model, tokenizer=tokenizer, device="cpu"
    )
    # A head's values keep their bias here, so they keep it there.
    made.enable_compatibility_mode(
        disable_warnings=True, no_processing=not processing, fold_value_biases=False
    )
    return made


def compare(ours: Any, theirs: Any, processed: Any, asked: argparse.Namespace) -> None:
    from transformer_lens import patching

    clean = torch.randperm(asked.vocabulary)[: asked.tokens]
    corrupted = clean.clone()
    corrupted[asked.tokens // 2] = int(clean[0])

    def metric(logits: Tensor) -> Tensor:
        return logits[0, -1, RIGHT] - logits[0, -1, WRONG]

    _, cache = theirs.run_with_cache(clean[None])

    def grid(tool: Any) -> Callable[[], Tensor]:
        return lambda: tool(theirs, corrupted[None], cache, metric)

    def our_grid(by: str) -> Callable[[], Tensor]:
        return lambda: patch(ours, clean, corrupted, right=RIGHT, wrong=WRONG, by=by).values  # type: ignore[arg-type]

    vector = torch.randn(asked.width)
    timed: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
        "trace: every stage": (
            lambda: ours.trace(clean).weights(0),
            lambda: theirs.run_with_cache(clean[None])[1]["blocks.0.attn.hook_pattern"][0],
        ),
        "patching by layer and position": (
            our_grid("position"),
            grid(patching.get_act_patch_resid_pre),
        ),
        "patching by layer and head": (
            our_grid("head"),
            grid(patching.get_act_patch_attn_head_out_all_pos),
        ),
        "ablation of every head and MLP": (
            lambda: _table(ablate(ours, clean, right=RIGHT, wrong=WRONG)),
            lambda: ablation(theirs, clean, metric, asked),
        ),
        "direct logit attribution": (
            lambda: _attributed(direct_logit_attribution(ours, clean, RIGHT, WRONG)),
            lambda: attribution(processed, clean),
        ),
    }
    checked: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
        **timed,
        "logits": (lambda: ours.trace(clean).logits, lambda: theirs(clean[None])[0]),
        "logit difference": (
            lambda: logit_difference(ours, clean, RIGHT, WRONG),
            lambda: metric(theirs(clean[None])),
        ),
        "a head switched off": (
            partial(_edited, ours, clean, zero=head(1, 1)),
            lambda: hooked(theirs, clean, "blocks.1.attn.hook_z", _zero_head(1)),
        ),
        "steering": (
            partial(_edited, ours, clean, steer={residual(1): vector}),
            lambda: hooked(theirs, clean, "blocks.1.hook_resid_pre", lambda x, hook: x + vector),
        ),
        "head scores": (lambda: scores(ours, clean), lambda: their_scores(theirs, clean, asked)),
    }
    print(f"{'result':34}{'largest difference':>20}{'largest value':>16}")
    for name, (mine, other) in checked.items():
        a, b = mine(), other()
        print(f"{name:34}{float((a - b).abs().max()):20.1e}{float(b.abs().max()):16.3g}")
    print(f"\n{'time of TransformerLens / clearformer':40}{'median':>8}{'range':>18}")
    for name, (mine, other) in timed.items():
        ratios = [ratio(mine, other) for _ in range(asked.rounds)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name:40}{statistics.median(ratios):8.2f}{spread:>18}")


def ratio(mine: Callable[[], Tensor], other: Callable[[], Tensor]) -> float:
    times = []
    for function in (mine, other):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return times[1] / times[0]


# --- ours ----------------------------------------------------------------------------------


def _edited(model: Any, tokens: Tensor, **changes: object) -> Tensor:
    with model.edit(**changes):
        return model.module(tokens[None])[0]


def _table(found: Any) -> Tensor:
    return torch.cat((found.heads.flatten(), found.mlps))


def _attributed(found: Any) -> Tensor:
    return torch.cat((found.heads.flatten(), found.mlps))


def scores(model: Any, once: Tensor) -> Tensor:
    """Previous, duplicate and induction scores on tokens that are repeated once."""
    trace = model.trace(torch.cat((once, once)))
    found = _scores(trace.stacked("weights", "self"), len(once))
    found[0] = previous_token_scores(trace)
    return found


# --- theirs --------------------------------------------------------------------------------


def hooked(model: Any, tokens: Tensor, name: str, hook: Callable[..., Tensor]) -> Tensor:
    return model.run_with_hooks(tokens[None], fwd_hooks=[(name, hook)])[0]


def _zero_head(number: int) -> Callable[..., Tensor]:
    def hook(z: Tensor, hook: object) -> Tensor:
        z = z.clone()
        z[:, :, number] = 0
        return z

    return hook


def ablation(
    model: Any, tokens: Tensor, metric: Callable[[Tensor], Tensor], asked: argparse.Namespace
) -> Tensor:
    found = []
    for layer in range(asked.layers):
        for number in range(asked.heads):
            name = f"blocks.{layer}.attn.hook_z"
            found.append(metric(hooked(model, tokens, name, _zero_head(number))[None]))
    for layer in range(asked.layers):
        name = f"blocks.{layer}.hook_mlp_out"
        logits = hooked(model, tokens, name, lambda x, hook: torch.zeros_like(x))
        found.append(metric(logits[None]))
    return torch.stack(found)


def attribution(model: Any, tokens: Tensor) -> Tensor:
    """By their cache: heads, then MLPs, at the last position."""
    _, cache = model.run_with_cache(tokens[None])
    heads = cache.stack_head_results(layer=-1, pos_slice=-1)  # (N * H, 1, E)
    layers = range(model.cfg.n_layers)
    mlps = torch.stack([cache[f"blocks.{n}.hook_mlp_out"][:, -1] for n in layers])
    stack = cache.apply_ln_to_stack(torch.cat((heads, mlps)), layer=-1, pos_slice=-1)
    direction = model.W_U[:, RIGHT] - model.W_U[:, WRONG]
    return (stack @ direction)[:, 0]


def their_scores(model: Any, once: Tensor, asked: argparse.Namespace) -> Tensor:
    """Their detection patterns on their attention: the mean weight of the detected cells."""
    from transformer_lens import head_detector as detector

    tokens = torch.cat((once, once))[None]
    _, cache = model.run_with_cache(tokens)
    found = []
    for make in (
        detector.get_previous_token_head_detection_pattern,
        detector.get_duplicate_token_head_detection_pattern,
        detector.get_induction_head_detection_pattern,
    ):
        cells = make(tokens)
        rows = [cache[f"blocks.{n}.attn.hook_pattern"][0] for n in range(asked.layers)]
        found.append(torch.stack([(row * cells).sum((-1, -2)) / cells.sum() for row in rows]))
    return torch.stack(found)


if __name__ == "__main__":
    main()
