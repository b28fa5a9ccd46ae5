"""Beam search with one set of Marian-shaped weights: ours, transformers, CTranslate2.

    python benchmarks/translate.py [--rounds 5] [--size small|base] [--run RUN] [--threads 2]
        [--together] [--cpu-time]

Beam 4, batch 32, float32. The weights are of MarianMTModel's architecture (post-norm, sinusoidal
positions, one shared embedding); ours are the same numbers under other names, and it is printed
how many translations are the same. Random weights never end a sentence, so all run to 48 tokens:
the price of a step. A trained run shows what it is to translate: sentences end at different
lengths, and ours then leave the batch. Train it in Marian's shape:

    clearformer train original-small --data multi30k --model.residual post \\
        --model.position.order halves --minutes 10 --out RUN

Contestants take turns, one batch each a round, each in a process of its own unless they are all
put `--together` (turns.py); figures are medians, ratios are of medians.
`--cpu-time` counts the seconds that this process computes and not those that it waits for others:
with one thread that is the way to measure on a machine that is shared. At the end it is printed
where our time goes (torch's profiler, one more batch).
"""

import argparse
import statistics
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import turns
from profiled import profile
from torch import Tensor

from clearformer import config as c
from clearformer.builder import build
from clearformer.cli.train import places
from clearformer.core.model import Seq2Seq
from clearformer.families import original
from clearformer.generate.beam import Beam
from clearformer.generate.translate import Translator
from clearformer.runs.load import open_translator
from clearformer.tasks.translation import pairs
from clearformer.text.plain import Bytes

BATCH, BEAM, MOST = 32, 4, 48
# layers of each stack, width, heads, hidden, vocabulary
SIZES = {"small": (3, 256, 4, 1024, 8_001), "base": (6, 512, 8, 2048, 32_001)}
Tokens = list[tuple[int, ...]]
Translate = Callable[[list[list[int]]], Tokens]


def prepared(run: Path | None, size: str) -> tuple[Translator, Any, list[list[int]]]:
    """Shared by all measurements: our model, Marian's with the same weights, and sources."""
    torch.manual_seed(0)
    translator, sources = translator_of(run, size)
    return translator, marian(translator), sources


def translator_of(run: Path | None, size: str) -> tuple[Translator, list[list[int]]]:
    """A model of ours in Marian's shape, and sources for it."""
    if run is None:
        layers, width, heads, hidden, vocabulary = SIZES[size]
        config = replace(
            original("small"),
            vocabulary=vocabulary,
            layers=layers,
            decoder_layers=layers,
            width=width,
            heads=heads,
            hidden=hidden,
            residual="post",
            position=c.Sinusoidal(order="halves"),
        )
        generation = c.GenerationDefaults(start_id=vocabulary - 1, end_ids=(vocabulary - 2,))
        model = build(config)
        assert isinstance(model, Seq2Seq)
        lengths = torch.randint(6, 25, (8 * BATCH,)).tolist()
        sources = [torch.randint(0, vocabulary - 2, (length,)).tolist() for length in lengths]
        # A source is closed as it is in training.
        closed = [[*each, vocabulary - 2] for each in sources]
        # Texts are not needed here.
        return Translator(model.eval(), config, generation, Bytes()), closed
    opened = open_translator(run)
    held = pairs(opened.config.data, places(None), opened.config.train.seed)[1]
    texts = [text for text in held.sources if len(text) < 200]
    return opened.translator, opened.translator.encode(texts)


def marian(translator: Translator) -> Any:
    """The same weights in transformers; parameters that only Marian has are zero."""
    from transformers import MarianConfig, MarianMTModel

    ours = translator.config
    if ours.residual != "post" or ours.position != c.Sinusoidal(order="halves"):
        raise SystemExit(f"{ours.name} is not in Marian's shape: train it as --help says")
    start_id, end_id = translator.generation.require_target_ids(ours.name)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=ours.vocabulary,
            d_model=ours.width,
            encoder_layers=ours.layers,
            decoder_layers=ours.decoder_layers,
            encoder_attention_heads=ours.heads,
            decoder_attention_heads=ours.heads,
            encoder_ffn_dim=ours.hidden,
            decoder_ffn_dim=ours.hidden,
            max_position_embeddings=ours.length,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=start_id,
            decoder_start_token_id=start_id,
            eos_token_id=end_id,
            forced_eos_token_id=None,
            attn_implementation="sdpa",
        )
    ).eval()
    theirs = dict(model.named_parameters())
    with torch.no_grad():
        # As in real ones, and as CTranslate2 takes it: targets start from nothing.
        translator.model.source_embedding.token.weight[start_id] = 0.0
        for name, parameter in theirs.items():
            if name.endswith("proj.bias"):
                parameter.zero_()
        for name, parameter in translator.model.named_parameters():
            several = their_names(name)
            for other, part in zip(several, parameter.chunk(len(several)), strict=True):
                theirs[other].copy_(part)
    return model


def their_names(name: str) -> list[str]:
    """Marian's parameters that are concatenated in ours."""
    if name == "source_embedding.token.weight":
        return ["model.shared.weight"]
    side, _, layer, *path = name.split(".")
    kind = path.pop()
    below = f"model.{side}.layers.{layer}"
    attention = {"attention": "self_attn", "cross_attention": "encoder_attn"}
    match path:
        case [part, "project"]:
            heads = ("q_proj", "k_proj", "v_proj")
            return [f"{below}.{attention[part]}.{each}.{kind}" for each in heads]
        case [part, "output"]:
            return [f"{below}.{attention[part]}.out_proj.{kind}"]
        case ["feed_forward", way]:
            return [f"{below}.{ {'up': 'fc1', 'down': 'fc2'}[way] }.{kind}"]
        case ["feed_forward_norm"]:
            return [f"{below}.final_layer_norm.{kind}"]
        case [norm]:
            return [f"{below}.{attention[norm.removesuffix('_norm')]}_layer_norm.{kind}"]
        case _:
            raise AssertionError(name)


def by_us(run: Path | None, size: str) -> Translate:
    translator, _, _ = prepared(run, size)
    how = Beam(width=BEAM)
    return lambda batch: [each[0].tokens for each in translator.decode(batch, how, MOST)]


def by_transformers(run: Path | None, size: str) -> Translate:
    _, model, _ = prepared(run, size)
    pad, end = model.config.pad_token_id, model.config.eos_token_id

    def translate(batch: list[list[int]]) -> Tokens:
        tokens, attention_mask = padded(batch, pad)
        out = model.generate(
            tokens,
            attention_mask=attention_mask,
            num_beams=BEAM,
            max_new_tokens=MOST,
            max_length=None,
            bad_words_ids=[[pad]],
        )
        return [cut(row[1:]) for row in out.tolist()]

    def cut(row: list[int]) -> tuple[int, ...]:
        row = row[: row.index(end)] if end in row else row
        return tuple(token for token in row if token != pad)

    return translate


def by_ctranslate2(run: Path | None, size: str) -> Translate:
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    _, model, _ = prepared(run, size)
    # It has no padding among its words, and starts from nothing by itself.
    words = [str(i) for i in range(model.config.vocab_size - 1)]
    words[model.config.eos_token_id] = "</s>"
    spec = MarianMTLoader().get_model_spec(model)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.eos_token, spec.config.unk_token = "</s>", "1"
    spec.config.decoder_start_token = "</s>"
    folder = tempfile.TemporaryDirectory(prefix="clearformer-bench-")
    spec.validate()
    spec.optimize()
    spec.save(folder.name)
    engine = ctranslate2.Translator(
        folder.name,
        device="cpu",
        compute_type="float32",
        intra_threads=torch.get_num_threads(),
        inter_threads=1,
    )

    def translate(batch: list[list[int]]) -> Tokens:
        found = engine.translate_batch(
            [[words[token] for token in row] for row in batch],
            beam_size=BEAM,
            max_decoding_length=MOST,
            length_penalty=1,
        )
        places = {word: i for i, word in enumerate(words)}
        return [tuple(places[word] for word in each.hypotheses[0]) for each in found]

    return translate


def padded(batch: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    longest = max(map(len, batch))
    tokens = torch.tensor([row + [pad] * (longest - len(row)) for row in batch])
    return tokens, (tokens != pad).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--run", type=Path, default=None)
    turns.options(parser, rounds=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")
    _, _, sources = prepared(arguments.run, arguments.size)
    batches = [
        sources[first : first + BATCH] for first in range(0, len(sources) - BATCH + 1, BATCH)
    ]
    makers = {"clearformer": by_us, "transformers": by_transformers}
    if find_spec("ctranslate2") is None:
        print("CTranslate2 is not installed: without it")
    else:
        makers["CTranslate2, float32"] = by_ctranslate2
    running = {
        name: turns.Contestant(partial(make, arguments.run, arguments.size), arguments)
        for name, make in makers.items()
    }
    warm = {name: there.ask(batches[-1])[1] for name, there in running.items()}
    for name, found in warm.items():
        same = sum(a == b for a, b in zip(found, warm["transformers"], strict=True))
        print(f"{name}: {same} of {BATCH} translations as transformers'", flush=True)
    lengths = sorted(len(row) for row in warm["transformers"])
    print(f"their lengths: {lengths[0]} to {lengths[-1]}, median {lengths[BATCH // 2]}")
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(arguments.rounds):
        names = list(running)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(running[name].ask(batches[turn % len(batches)])[0])
    for there in running.values():
        there.end()
    mine = statistics.median(seconds["clearformer"])
    what = arguments.run or f"random {arguments.size}"
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {what}, ", end="")
    print(f"beam {BEAM}, batch {BATCH}, {arguments.rounds} rounds\n")
    print(f"{'':22}{'seconds':>9}{'sentences/s':>13}{'ours is':>9}")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:22}{median:9.3f}{BATCH / median:13.1f}{median / mine:8.2f}x")
    profile("a batch", partial(by_us(arguments.run, arguments.size), batches[0]))


if __name__ == "__main__":
    main()
