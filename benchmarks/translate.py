"""Beam search with one set of Marian-shaped weights: ours, transformers, CTranslate2.

    python benchmarks/translate.py [--rounds 5] [--size small|base] [--ends varied|never]

Beam 4, batch 32, float32. The weights are random, of MarianMTModel's architecture (post-norm,
sinusoidal positions, one shared embedding); ours are the same numbers under other names, and
everyone must find the same translations, or there is no figure. With `--ends varied` the logit
of the end mark is raised so that sentences end at different lengths, as real ones do; with
`never` all run to the most tokens there may be, which measures a step alone. Contestants take
turns, one batch each a round; figures are medians, ratios are of medians.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearformer import config as c
from clearformer.build import build
from clearformer.core.model import Seq2Seq
from clearformer.generate.beam import Beam
from clearformer.generate.translate import Translator
from clearformer.text.plain import Bytes

BATCH, BEAM, MOST = 32, 4, 48
# layers of each stack, width, heads, hidden, vocabulary
SIZES = {"small": (3, 256, 4, 1024, 8_001), "base": (6, 512, 8, 2048, 32_001)}
END = 0  # Marian's
Tokens = list[tuple[int, ...]]


def marian(size: str, ends: str) -> Any:
    from transformers import MarianConfig, MarianMTModel

    layers, width, heads, hidden, vocabulary = SIZES[size]
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=hidden,
        decoder_ffn_dim=hidden,
        max_position_embeddings=128,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=vocabulary - 1,
        decoder_start_token_id=vocabulary - 1,
        eos_token_id=END,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed_positions" not in name:
                parameter.normal_(std=2 * parameter.shape[1] ** -0.5)
        model.model.shared.weight.normal_(std=0.6 * width**-0.5)
        model.model.shared.weight[-1] = 0.0  # as in real ones: targets start from nothing
        model.final_logits_bias.normal_(std=0.3)
        model.final_logits_bias[0, END] = {"varied": 2.3, "never": -100.0}[ends]
    return model


def ours(theirs: Any) -> Translator:
    """The same weights under our names."""
    their_config = theirs.config
    vocabulary = their_config.vocab_size
    config = c.Seq2SeqConfig(
        name="original-marian",
        vocabulary=vocabulary,
        length=their_config.max_position_embeddings,
        layers=their_config.encoder_layers,
        decoder_layers=their_config.decoder_layers,
        width=their_config.d_model,
        heads=their_config.encoder_attention_heads,
        hidden=their_config.encoder_ffn_dim,
        residual="post",
        activation="relu",
        position=c.Sinusoidal(order="halves"),
        patterns=(c.Causal(),),
        head=c.NextToken(tied=True),
        past=c.KVCache(),
        embedding_scale="sqrt_width",
        biases=c.Biases(head=True),
        init="torch_default",
        marks=c.Marks(start=vocabulary - 1, end=END),
    )
    model = build(config)
    assert isinstance(model, Seq2Seq)
    state = theirs.state_dict()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(
                torch.cat([state[each] for each in their_names(name)]).view_as(parameter)
            )
    return Translator(model.eval(), config, Bytes())  # texts are not needed here


def their_names(name: str) -> list[str]:
    """Marian's parameters that lie end to end in ours."""
    if name == "source_embedding.token.weight":
        return ["model.shared.weight"]
    if name == "head.project.bias":
        return ["final_logits_bias"]
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


def by_us(translator: Translator) -> Callable[[list[list[int]]], Tokens]:
    how = Beam(width=BEAM)
    return lambda batch: [each[0].tokens for each in translator.decode(batch, how, MOST)]


def by_transformers(model: Any) -> Callable[[list[list[int]]], Tokens]:
    pad = model.config.pad_token_id

    def translate(batch: list[list[int]]) -> Tokens:
        tokens, keep = padded(batch, pad)
        out = model.generate(
            tokens,
            attention_mask=keep,
            num_beams=BEAM,
            max_new_tokens=MOST,
            max_length=None,
            bad_words_ids=[[pad]],
        )
        return [cut(row[1:]) for row in out.tolist()]

    def cut(row: list[int]) -> tuple[int, ...]:
        row = row[: row.index(END)] if END in row else row
        return tuple(token for token in row if token != pad)

    return translate


def by_ctranslate2(model: Any, threads: int) -> Callable[[list[list[int]]], Tokens] | None:
    """Float32 too; none if it is not installed or cannot take the weights."""
    try:
        import ctranslate2
        from ctranslate2.converters.transformers import MarianMTLoader
        from ctranslate2.specs.transformer_spec import TransformerSpec
    except ImportError as problem:
        print(f"without CTranslate2: {problem}")
        return None
    # It has no padding among its words, and starts from nothing by itself.
    words = [str(i) for i in range(model.config.vocab_size - 1)]
    words[END] = "</s>"
    spec: TransformerSpec = MarianMTLoader().get_model_spec(model)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.eos_token, spec.config.unk_token = "</s>", "1"
    spec.config.decoder_start_token = "</s>"
    folder = tempfile.mkdtemp(prefix="clearformer-bench-")
    spec.validate()
    spec.optimize()
    spec.save(folder)
    engine = ctranslate2.Translator(
        folder, device="cpu", compute_type="float32", intra_threads=threads, inter_threads=1
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--ends", choices=("varied", "never"), default="varied")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    model = marian(arguments.size, arguments.ends)
    vocabulary = model.config.vocab_size
    batches = [
        [
            [*torch.randint(1, vocabulary - 1, (int(length),)).tolist(), END]
            for length in torch.randint(6, 25, (BATCH,))
        ]
        for _ in range(arguments.rounds + 1)
    ]
    contestants = {
        "clearformer": by_us(ours(model)),
        "transformers": by_transformers(model),
        "CTranslate2, float32": by_ctranslate2(model, torch.get_num_threads()),
    }
    running = {name: run for name, run in contestants.items() if run is not None}
    warm = {name: run(batches[-1]) for name, run in running.items()}
    for name, found in warm.items():
        same = sum(a == b for a, b in zip(found, warm["transformers"], strict=True))
        print(f"{name}: {same} of {BATCH} translations as transformers'", flush=True)
    lengths = sorted(len(row) for row in warm["transformers"])
    print(f"their lengths: {lengths[0]} to {lengths[-1]}, median {lengths[BATCH // 2]}")
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(arguments.rounds):
        names = list(running)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            began = time.perf_counter()
            running[name](batches[turn])
            seconds[name].append(time.perf_counter() - began)
    mine = statistics.median(seconds["clearformer"])
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.size}, ", end=""
    )
    print(f"beam {BEAM}, batch {BATCH}, ends {arguments.ends}, {arguments.rounds} rounds\n")
    print(f"{'':22}{'seconds':>9}{'sentences/s':>13}{'ours is':>9}")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:22}{median:9.3f}{BATCH / median:13.1f}{median / mine:8.2f}x")


if __name__ == "__main__":
    main()
