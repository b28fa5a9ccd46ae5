"""`clearformer reach strided --length 64 --layers 3`: which inputs can change which outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from clearformer.cli.output import say, tell, write_json

if TYPE_CHECKING:
    from clearformer.config import Pattern

LONGEST = 4096  # positions: the table has all pairs
MOST_LAYERS = 256  # each is a matrix product of such tables


@dataclass(frozen=True)
class Reach:
    """Show which inputs can change which outputs, through the layers of a pattern or a preset."""

    model: tyro.conf.Positional[str]
    """causal, local, strided, merged, heads, fixed; or a preset such as sparse-enwik8, xl-small."""
    length: int | None = None
    """Positions of the sequence, or of a segment; none: 64, or the preset's if that is shorter."""
    layers: int | None = None
    """Layers; none: 2, or the preset's."""
    stride: int | None = None
    """Stride of a pattern by name; none: the square root of the length."""
    memory: int | None = None
    """Hidden states that each layer keeps of earlier segments; none: the preset's, or 0."""
    picture: Path | None = None
    """Save a picture to this file (.png, .svg or .pdf); without a name into reach.png."""
    json: bool = False
    """Print the figures as one line of JSON."""

    def run(self) -> None:
        from clearformer.cli.tables import require_picture
        from clearformer.explore.reach import reach_with_memory
        from clearformer.tasks.pattern_checks import require_visible_keys, unlikely_values

        require_picture(self.picture)
        patterns, length, layers, memory = self._stack()
        limits = (("length", length, 1), ("layers", layers, 1), ("memory", memory, 0))
        for name, value, least in limits:
            if value < least:
                raise ValueError(f"{name} is {value}, but it must be at least {least}")
        if layers > MOST_LAYERS:
            raise ValueError(f"layers is {layers}, but it must be at most {MOST_LAYERS}")
        total = length + layers * memory
        if total > LONGEST:
            raise ValueError(
                f"{length} positions and {layers} memories of {memory} make {total:,}, but a table "
                f"of all pairs is drawn for up to {LONGEST:,}: use a smaller --length or --memory"
            )
        require_visible_keys(patterns, length)
        notes = list(unlikely_values(patterns, length + memory))
        several = [patterns[layer % len(patterns)] for layer in range(layers)]
        found = reach_with_memory(several, length, memory)
        after = f"after {layers} layers" if layers > 1 else "after 1 layer"
        last = int(found[-1, -length:].sum())
        pairs = int(found.sum())
        before = int(found[-1, :-length].sum())
        past = f" and {before:,} before them" if found.shape[1] > length else ""
        by_layer = [
            int(reach_with_memory(several[: layer + 1], length, memory)[-1].sum())
            for layer in range(layers)
        ]
        if self.json:
            stack = {"length": length, "layers": layers, "memory": memory}
            reached = {"last": last, "before": before, "mean": pairs / length}
            write_json({**stack, **reached, "by_layer": by_layer, "notes": notes})
        else:
            for line in notes:
                say(f"note: {line}")
            say(
                f"{after} the last of {length} positions can be changed by {last:,} of them{past}; "
                f"on average an output by {pairs / length:.1f}"
            )
            for layer, count in enumerate(by_layer, start=1):
                say(f"  layers 1 to {layer}: {count:,} positions reach the last")
        if self.picture is not None:
            from clearformer.explore import figures

            title = f"{self.model}: what reaches an output {after}"
            figures.save(figures.reach(found, title), self.picture)
            (tell if self.json else say)(f"picture: {self.picture}")

    def _stack(self) -> tuple[tuple[Pattern, ...], int, int, int]:
        """The patterns (repeated over the layers), length, layers and memory."""
        import math

        from clearformer import config as c
        from clearformer.did_you_mean import nearest
        from clearformer.families import preset

        length = 64 if self.length is None else self.length
        stride = max(1, math.isqrt(max(length, 0))) if self.stride is None else self.stride
        local, strided = c.Local(window=stride), c.Strided(stride=stride)
        named: dict[str, tuple[Pattern, ...]] = {
            "causal": (c.Causal(),),
            "local": (c.Causal() & local,),
            "strided": (c.Causal() & local, c.Causal() & strided),
            "merged": (c.Causal() & (local | strided),),
            "heads": (c.Causal() & c.PerHead(patterns=(local, strided)),),
            "fixed": (c.Causal() & c.Fixed(stride=stride, summary=1),),
        }
        if self.model in named:
            layers = 2 if self.layers is None else self.layers
            return named[self.model], length, layers, self.memory or 0
        try:
            model = preset(self.model)
        except ValueError as problem:
            raise ValueError(f"{problem}, or a pattern: {nearest(self.model, named)}") from None
        if self.stride is not None:
            raise ValueError(f"--stride is for patterns by name, but {self.model} has its own")
        memory = model.memory or 0
        shown = replace(model, length=min(model.length, 64) if self.length is None else length)
        return (
            shown.patterns,
            shown.length,
            model.layers if self.layers is None else self.layers,
            memory if self.memory is None else self.memory,
        )
