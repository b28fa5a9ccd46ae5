"""`clearformer attend "mary gave roses to susan"`: self-attention, step by step.

Without a model each word is a random vector and attention has no parameters. With a model, trained
or with random weights, the same stages are shown for one of its layers and heads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from clearformer.cli.output import say, tell, write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor


@dataclass(frozen=True)
class Attend:
    """Show self-attention on your own words, step by step, with real numbers."""

    text: tyro.conf.Positional[str]
    """The words to attend to."""
    model: str | None = None
    """A trained model (a run, a Hugging Face folder, an exported file), or a preset with random
    weights (`clearformer describe` lists them); none: attention without parameters."""
    layer: int = 0
    """Which layer of the model, from 0."""
    head: int = 0
    """Which head of the layer, from 0."""
    part: str | None = None
    """Of a trained translator: encoder, decoder or cross; none: encoder."""
    target: str | None = None
    """Of a trained translator: the target text that its decoder reads; none: its translation."""
    query: str | None = None
    """The query word or token, or its position from 0; none: the second one."""
    mask: Literal["model", "none", "causal"] = "model"
    """The attention mask; without a model the default is none."""
    width: int = 4
    """Dimension of the word vectors, without a model."""
    seed: int = 0
    """The random seed."""
    shuffle: bool = False
    """Also shuffle the words, and show whether the outputs move with them."""
    picture: Path | None = None
    """Draw the tables into this file (.png, .svg or .pdf)."""
    json: bool = False
    """Print every stage, for all words, as one line of JSON."""

    def run(self) -> None:
        from clearformer.cli.tables import require_picture

        require_picture(self.picture)
        words = self.text.split()
        if not words:
            raise ValueError("the text has no words: give some, as in clearformer attend 'to be'")
        shown = self._stages(words)
        query = _place(self.query, shown.queries)
        if self.json:
            write_json(_document(shown, query, self.seed if self.shuffle else None))
        else:
            _print_stages(shown, query)
        if self.shuffle and not self.json:
            _print_shuffle(shown, self.seed)
        if self.picture is not None:
            from clearformer.explore import figures

            figures.save(shown.figure(), self.picture)
            if not self.json:
                say()
            (tell if self.json else say)(f"picture: {self.picture}")

    def _stages(self, words: list[str]) -> AttentionStages:
        if self.model is not None and _is_trained(self.model):
            return OfTrained(self)
        for name in ("part", "target"):
            if getattr(self, name) is not None:
                raise ValueError(f"--{name} is for a trained translator: give it as --model")
        return Parameterless(self, words) if self.model is None else OfModel(self, words)


class AttentionStages:
    """The stages of one attention on one sentence, named as in `explore.trace`."""

    title: str
    divisor: str  # what raw scores are divided by
    queries: list[str]  # the words that look
    keys: list[str]  # the words that they look at
    stages: Mapping[str, Tensor]

    def figure(self) -> Figure:
        """The tables of scores and weights, side by side."""
        from clearformer.explore import figures

        tables = [
            ("raw dot products", self.stages["scores_raw"]),
            (f"scaled: ÷ {self.divisor}", self.stages["scores_scaled"]),
            ("masked", self.stages["scores_masked"]),
            ("softmax: weights", self.stages["weights"]),
        ]
        return figures.ladder(tables, self.queries, self.title)

    def shuffle_errors(self, order: list[int]) -> list[tuple[str, float]]:
        """For each setting, the largest difference of f(shuffled) and shuffled f."""
        raise NotImplementedError


class Parameterless(AttentionStages):
    """Attention without parameters: a vector is its own query, key and value."""

    def __init__(self, asked: Attend, words: list[str]) -> None:
        from clearformer.explore.trace import PATTERNS, basic_stages

        if asked.width < 1:
            raise ValueError(f"width is {asked.width}, but a vector has at least 1 number")
        self.title = f"attention without parameters, {asked.width} numbers a word"
        self.divisor = "1"
        self.queries = self.keys = words
        self.vectors = word_vectors(words, asked.width, asked.seed)  # (T, E)
        self.stages = basic_stages(self.vectors, PATTERNS.get(asked.mask, PATTERNS["none"]))

    def shuffle_errors(self, order: list[int]) -> list[tuple[str, float]]:
        from clearformer.core.basic import attend

        error = (attend(self.vectors[order]) - attend(self.vectors)[order]).abs().max()
        return [("attention without parameters", float(error))]


class ShuffledModel(AttentionStages):
    """A model whose tokens can be shuffled."""

    model: object  # as `trace` takes it
    tokens: Tensor  # (1, T)
    place: tuple[str, int]  # part and layer

    def shuffle_errors(self, order: list[int]) -> list[tuple[str, float]]:
        return [
            ("without positions, no mask", self._shuffle_error(order, positions=False)),
            ("with the model's positions, no mask", self._shuffle_error(order, positions=True)),
        ]

    def _shuffle_error(self, order: list[int], positions: bool) -> float:
        from clearformer.explore.trace import trace

        straight, shuffled = (
            trace(self.model, tokens, ["head_out"], mask="none", positions=positions).recorded[
                self.place
            ]
            for tokens in (self.tokens, self.tokens[:, order])
        )
        difference = shuffled["head_out"] - straight["head_out"][:, :, order]
        return float(difference.abs().max())


class OfTrained(ShuffledModel):
    """One head of a trained model; its tokens are those of its tokenizer."""

    def __init__(self, asked: Attend) -> None:
        from clearformer.cli.generated import note
        from clearformer.model import load

        assert asked.model is not None
        model = load(asked.model)
        note(*model.notes)
        self.head = model.attend(
            asked.text, layer=asked.layer, head=asked.head, part=asked.part, target=asked.target,
            mask=asked.mask,
        )  # fmt: skip
        if asked.shuffle and self.head.part in ("decoder", "cross"):
            raise ValueError(f"--shuffle has no meaning for the {self.head.part}: leave it out")
        self.model, self.title, self.place = model, self.head.title, (self.head.part, asked.layer)
        self.divisor = f"√{model.config.resolved_head_width}"
        self.queries, self.keys, self.stages = self.head.queries, self.head.keys, self.head.stages
        self.tokens = self.head.trace.input.tokens

    def figure(self) -> Figure:
        return self.head.picture()


class OfModel(ShuffledModel):
    """One head of a model with random weights; word ids are in order of appearance."""

    def __init__(self, asked: Attend, words: list[str]) -> None:
        import torch

        from clearformer.builder import build
        from clearformer.explore.stages import KERNEL
        from clearformer.explore.trace import trace
        from clearformer.families import preset

        assert asked.model is not None
        config = preset(asked.model)
        _require_below(config.layers, asked.layer, "layer", config.name)
        _require_below(config.heads, asked.head, "head", config.name)
        numbers = {word: i for i, word in enumerate(dict.fromkeys(words))}
        # Later layers and other words have no effect here, and are left out.
        small = replace(config, vocabulary=len(numbers), layers=asked.layer + 1)
        self.model = build(small, asked.seed)
        self.tokens = torch.tensor([[numbers[word] for word in words]])
        self.title = f"{config.name} (random weights), layer {asked.layer}, head {asked.head}"
        self.divisor = f"√{config.resolved_head_width}"
        self.queries = self.keys = words
        self.place = (config.parts[0], asked.layer)
        found = trace(self.model, self.tokens, tuple(KERNEL), layers=[asked.layer], mask=asked.mask)
        self.stages = {
            name: stage[0, asked.head] for name, stage in found.recorded[self.place].items()
        }


def word_vectors(words: list[str], width: int, seed: int) -> Tensor:
    """A random vector for each word, seeded by the word: the same word, the same vector.

    Rounded to one decimal, so that all that follows can be checked by hand.
    """
    import hashlib

    import torch

    def draw(word: str) -> Tensor:
        digest = hashlib.sha256(f"{seed} {word}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
        return (0.8 * torch.randn(width, generator=generator)).round(decimals=1)

    return torch.stack([draw(word) for word in words])


def _is_trained(model: str) -> bool:
    """Whether this is a path and not the name of a preset, which comes first: ./gpt2 is a path."""
    from clearformer.families import preset

    try:
        preset(model)
    except ValueError:
        return os.sep in model or os.path.lexists(os.path.expanduser(model))
    return False


def _place(query: str | None, words: list[str]) -> int:
    """The position of the query word, given by name or number."""
    if query is None:
        return min(1, len(words) - 1)
    # A tokenizer may mark a space before a word, or that a piece continues one.
    for spelled in (words, [word.strip("·▁#") for word in words]):
        if query in spelled:
            return spelled.index(query)
    if query.isdecimal() and int(query) < len(words):
        return int(query)
    listed = ", ".join(words[:20]) + (", ..." if len(words) > 20 else "")
    raise ValueError(
        f"query is {query!r}, but it must be one of the words ({listed}) "
        f"or a number from 0 to {len(words) - 1}"
    )


def _require_below(limit: int, value: int, name: str, model: str) -> None:
    if not 0 <= value < limit:
        raise ValueError(f"{name} is {value}, but {model} has {name}s 0 to {limit - 1}")


def _print_stages(shown: AttentionStages, query: int) -> None:
    from clearformer.cli.tables import Terminal, numbers, numbers_table

    console = Terminal()
    stages, looks, words = shown.stages, shown.queries[query], shown.keys
    console.say()
    console.say((shown.title, "bold"))
    console.say("the word ", (looks, "bold"), " looks at every word:")
    console.say()
    rows = [
        ("q·k   raw dot products", stages["scores_raw"][query]),
        (f"÷ {shown.divisor}   scaled", stages["scores_scaled"][query]),
        ("mask", stages["scores_masked"][query]),
        ("softmax   weights", stages["weights"][query]),
    ]
    if "bias" in stages:
        rows.insert(2, ("+ bias of distance", stages["bias"][query]))
    console.draw(numbers_table(words, rows, console.width))
    total = float(stages["weights"][query].sum())
    console.say()
    console.say(f"the weights sum to {total:.3f}, and mix the values:")
    console.say()
    for word, weight, value in zip(words, stages["weights"][query], stages["v"], strict=True):
        console.say(f"  {weight:.2f} × {numbers(value)}  {word}")
    output = numbers(stages["head_out"][query])
    console.say(("     = " + output, "bold"), f"  the output for {looks}")
    console.say()
    console.say("all weights, a row for each word that looks:")
    console.say()
    everyone = list(zip(shown.queries, stages["weights"], strict=True))
    console.draw(numbers_table(words, everyone, console.width, total="sum", shade=True))


def _document(shown: AttentionStages, query: int, seed: int | None) -> dict[str, object]:
    """All stages as JSON; with a seed, also how much the outputs differ after a shuffle."""
    stages = {name: _finite(stage.tolist()) for name, stage in shown.stages.items()}
    document = {"title": shown.title, "queries": shown.queries, "keys": shown.keys, "query": query}
    if seed is None:
        return {**document, "stages": stages}
    order = _shuffled(shown, seed)
    moved = [{"setting": name, "error": error} for name, error in shown.shuffle_errors(order)]
    return {**document, "stages": stages, "shuffled": {"order": order, "errors": moved}}


def _finite(value: Any) -> Any:
    """Numbers that JSON has: null for the minus infinity of a masked score."""
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if math.isfinite(value) else None


def _shuffled(shown: AttentionStages, seed: int) -> list[int]:
    import random

    order = list(range(len(shown.queries)))
    random.Random(seed + 1).shuffle(order)
    return order


def _print_shuffle(shown: AttentionStages, seed: int) -> None:
    words, order = shown.queries, _shuffled(shown, seed)
    say()
    say(f"shuffled: {' '.join(words[i] for i in order)}")
    for setting, error in shown.shuffle_errors(order):
        verdict = "the outputs moved with the words" if error < 1e-5 else "order matters"
        say(f"  {setting}: max |f(Px) − P f(x)| = {error:.1e}, {verdict}")
