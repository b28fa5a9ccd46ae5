"""`clearformer describe gpt2-xl`: the parts of a model, without building it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from clearformer.cli.output import say, write_json

if TYPE_CHECKING:
    from torch import nn

    from clearformer.cli.tables import Branch
    from clearformer.config import AnyModelConfig, Pattern, RunConfig
    from clearformer.core.model import Seq2Seq, Transformer


@dataclass(frozen=True)
class Describe:
    """Show a model's parts, shapes, parameters and memory, without allocating its weights."""

    model: tyro.conf.Positional[str | None] = None
    """A preset such as gpt2-xl, or a run; none: list the presets."""
    for_: Annotated[str | None, tyro.conf.arg(name="for")] = None
    """What a model is wanted for, such as "classify short texts, 2 cores, 10 minutes": propose
    three presets with their plans."""
    json: bool = False
    """Print presets, or the figures of a model, as lines of JSON."""
    batch: int = 16
    """Sequences in a batch, for the memory of the scores."""
    picture: Path | None = None
    """Draw the attention pattern into this file (.png, .svg or .pdf)."""

    def run(self) -> None:
        from clearformer.builder import outline
        from clearformer.cli.tables import Terminal, require_picture
        from clearformer.families import preset
        from clearformer.kernels.guides import count_pairs
        from clearformer.tasks.pattern_checks import describe as pattern_name

        require_picture(self.picture)
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}, but it must be at least 1")
        console = Terminal()
        if self.for_ is not None:
            _propose(self.for_, self.json)
            return
        if self.model is None:
            _print_presets(self.json)
            return
        folder = Path(self.model)
        found = _config_of(folder) if folder.is_dir() else None
        config = preset(self.model) if found is None else found.model
        model = outline(config)
        if self.json:
            write_json(_document(config, model, self.batch))
            return
        console.draw(_tree(config, model).tree)
        adapted = [] if found is None else _adapter(found)
        for line in _counts(model) + adapted + _memory(config, model, self.batch):
            console.say(line, soft_wrap=True)
        for position, each in enumerate(config.patterns):
            every = len(config.patterns)
            where = "every layer" if every == 1 else f"layers {position}, {position + every}, …"
            length = _telling_length(each, config.length)
            share = count_pairs(each, config.length) / config.length**2
            console.say()
            console.say(
                f"pattern, {where}: {pattern_name(each)}, {share:.1%} of {config.length}² pairs; "
                f"the first {length} positions:",
                soft_wrap=True,
            )
            console.say()
            for line in each.draw(length, cells=16).split("\n"):
                console.say((line, "blue"))
        if self.picture is not None:
            from clearformer.explore import figures

            first = config.patterns[0]
            shown = _telling_length(first, config.length)
            figures.save(figures.pattern(first, shown, config.name), self.picture)
            console.say()
            console.say(f"picture: {self.picture}")


def _config_of(run: Path) -> RunConfig:
    """The saved config of a run."""
    from clearformer.config import run_from_json
    from clearformer.safe_json import read_run_json

    path = run / "config.json"
    if not os.path.lexists(path):
        raise ValueError(f"{run} is not a run: it has no config.json")
    found = read_run_json(path)
    try:
        return run_from_json(found)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} is not a config of a run: {problem}") from None


def _adapter(config: RunConfig) -> list[str]:
    """What an adapter adds, and the model that it belongs to."""
    adapter, origin = config.train.adapter, config.origin
    if adapter is None or origin is None:
        return []
    from clearformer.adapters.attach import attach
    from clearformer.builder import outline

    parameters = attach(outline(config.model), adapter).parameters()
    count = sum(each.numel() for each in parameters if each.requires_grad)
    return [
        "",
        f"adapter: {type(adapter).__name__} of rank {adapter.rank}, alpha {adapter.alpha:g}, "
        f"targets {adapter.targets}: {count:,} parameters; checkpoints hold these, and a new head",
        f"  for the model in {origin.folder} (sha256 {origin.sha256[:12]})",
    ]


def parameters(module: nn.Module) -> int:
    """Parameters of a module; a shared one counts once."""
    return sum(parameter.numel() for parameter in module.parameters())


def _print_presets(json: bool) -> None:
    from clearformer.families import preset, presets
    from clearformer.families.purposes import purpose

    sizes = _sizes()
    for name in presets():
        config = preset(name)
        if json:
            write_json({"preset": name, "parameters": sizes[name], "purpose": purpose(name)})
            continue
        say(
            f"{name:16} {sizes[name]:>13,} parameters, {config.layers} layers, "
            f"width {config.width}, {config.heads} heads, length {config.length}: {purpose(name)}"
        )


def _sizes(trunk: bool = False) -> dict[str, int]:
    """Parameters of every preset; of the `trunk`, without embedding and head."""
    from clearformer.builder import outline
    from clearformer.families import preset, presets

    def size(model: Transformer | Seq2Seq) -> int:
        return sum(map(parameters, model.stacks.values())) if trunk else parameters(model)

    return {name: size(outline(preset(name))) for name in presets()}


def _propose(text: str, json: bool) -> None:
    """Three presets for a wish, each with its plan and the commands that plan and train it."""
    from clearformer.families.purposes import purpose, read_wish, suitable
    from clearformer.plan.summary import propose
    from clearformer.training.device import set_threads

    wish, trunks = read_wish(text), _sizes(trunk=True)
    set_threads(max(1, min(wish.cores, os.cpu_count() or 1)))
    data = {"classify": "my.csv", "translate": "train.en,train.de"}.get(wish.verb, "my.txt")
    if not json:
        long = ", long texts" if wish.long else ", short texts" if wish.short else ""
        say(f"{wish.verb}{long}, {wish.minutes:g} minutes on {wish.cores} cores:")
    for name in suitable(wish, trunks):
        task = "" if wish.task is None else f" --task {wish.task}"
        flags = f"{name} --data {data}{task} --minutes {wish.minutes:g}"
        found = propose(name, wish)
        if json:
            write_json({"preset": name, **found.document(), "train": flags})
            continue
        say()
        say(f"{name}: {purpose(name)}")
        for line in found.lines():
            say(f"  {line}")
        say(f"  clearformer plan {flags}")
        say(f"  clearformer train {flags}")


def _document(
    config: AnyModelConfig, model: Transformer | Seq2Seq, batch: int
) -> dict[str, object]:
    """The figures of a model as JSON."""
    from clearformer.config import to_json

    weights = 4 * parameters(model)
    table = 4 * config.length * (config.length + (config.memory or 0))
    parts = {name: parameters(part) for name, part in model.named_children()}
    memory = {"weights": weights, "training": 4 * weights, "score_table": table * batch}
    return {
        "model": config.name,
        "parameters": parameters(model),
        "parts": parts,
        "memory": memory,
        "config": to_json(config),
    }


def _tree(config: AnyModelConfig, model: Transformer | Seq2Seq) -> Branch:
    from clearformer.cli.tables import Branch

    tree = Branch.root((config.name, "bold"), f"  {parameters(model):,} parameters")
    _grow(tree, model, owners={})
    return tree


def _grow(tree: Branch, module: nn.Module, owners: dict[int, str], path: str = "") -> None:
    """Parts with their shapes; identical blocks are shown once."""
    from torch import nn

    for name, part in module.named_children():
        count = parameters(part)
        if count == 0:
            continue  # dropout and the like
        place = f"{path}{name}"
        if isinstance(part, nn.ModuleList):
            each = parameters(part[0])
            kind = type(part[0]).__name__
            branch = tree.add(f"{name}  {len(part)} × {kind}  {len(part)} × {each:,} = {count:,}")
            _grow(branch, part[0], owners, f"{place}.0.")
            continue
        shapes = []
        for own, value in part.named_parameters(recurse=False):
            owner = owners.setdefault(id(value), place)
            shared = "" if owner == place else f" (the same as {owner})"
            shapes.append(f"{own} {' × '.join(str(side) for side in value.shape)}{shared}")
        branch = tree.add(f"{name}  {type(part).__name__}  {count:,}  ", (", ".join(shapes), "dim"))
        _grow(branch, part, owners, f"{place}.")


def _counts(model: Transformer | Seq2Seq) -> list[str]:
    lines = ["", "parameters by part (a shared matrix counts where it comes first)"]
    seen: set[int] = set()
    for name, part in model.named_children():
        fresh = {id(p): p.numel() for p in part.parameters() if id(p) not in seen}
        seen |= fresh.keys()
        lines.append(f"  {name:18} {sum(fresh.values()):>15,}")
    lines.append(f"  {'total':18} {parameters(model):>15,}")
    if hasattr(model.head, "sentence"):  # as BERT was pretrained
        parts = ("embedding", "stack", "head.sentence.pool")
        encoder = sum(parameters(model.get_submodule(part)) for part in parts)
        lines.append(f"  {'encoder + pooler':18} {encoder:>15,}  as published, without the heads")
    return lines


def _memory(config: AnyModelConfig, model: Transformer | Seq2Seq, batch: int) -> list[str]:
    """Memory of the weights and of the t x t scores (eq. 28)."""
    from clearformer.cli.tables import byte_count

    weights = 4 * parameters(model)
    keys = config.length + (config.memory or 0)
    layers = config.attention_layers
    table = 4 * config.length * keys
    kept = 4 * table * batch * config.heads * layers
    return [
        "",
        "memory in float32",
        f"  weights            {byte_count(weights):>10}   with gradients and AdamW's two moments "
        f"{byte_count(4 * weights)}",
        f"  one table of scores{byte_count(table):>10}   {config.length} × {keys}, one head, one "
        f"sequence; a batch of {batch}: {byte_count(table * batch)}",
        f"  all tables to train{byte_count(kept):>10}   4 (before and after softmax, and their "
        f"gradients) × {config.heads} heads × {layers} attentions",
        "                                 the fused kernel keeps none of them",
    ]


def _telling_length(pattern: Pattern, length: int) -> int:
    """A number of positions at which a pattern is recognizable: a few of its largest strides."""
    from clearformer.config import strides

    return min(length, 4 * max(strides(pattern), default=0) or length)
