"""The numbers behind the pictures of docs/verify.md: what the wrong and the right form compute.

`VIEWS` holds a view for each bug of the catalogue. Most run a model of benchmarks/verify_models
with the bug planted and without; the others run the two lines of the bug's section.
Axes: B batch, T tokens, Q queries, K keys, D head width.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from verify_models.mutants import MUTANTS
from verify_models.sources import SOURCES, Source, class_of, file_of

from clearformer.verification.attention import find_attention
from clearformer.verification.caching import find_cache
from clearformer.verification.dependence import dependence, same_inputs
from clearformer.verification.padding import PaddingMask, find_mask, padded
from clearformer.verification.probe import Probe

T = 10


@dataclass(frozen=True)
class View:
    """What is drawn for a bug: `wrong` and `right` are tables (rows, columns) or series."""

    caption: str
    x: str
    y: str
    wrong: Callable[[], Tensor]
    right: Callable[[], Tensor]
    kind: str = "table"  # or bars, lines
    log: bool = False
    ticks: tuple[float, ...] = field(default=())  # of the x axis of lines


# --- models with a bug and without --------------------------------------------------------------


def mutant(bug: str, source: str | None = None, nth: int = 0) -> tuple[nn.Module, nn.Module]:
    """A model with the bug planted, and the same model without it."""
    own = [each for each in MUTANTS if each.bug == bug and source in (None, each.source)]
    own = [each for each in own if not each.source.startswith(("hf_", "x_"))]
    chosen = own[nth]
    models = []
    for edits in (chosen.edits, ()):
        torch.manual_seed(0)
        models.append(SOURCES[chosen.source].model(edits))
    return models[0], models[1]


def planted(
    bug: str, look: Callable[[Probe], Tensor], x: str, y: str, caption: str, **options: object
) -> View:
    """A view of a mutant and of the model without the bug."""
    source, nth = options.pop("source", None), options.pop("nth", 0)
    mask = options.pop("mask", None)

    def run(which: int) -> Tensor:
        probe = Probe(mutant(bug, source, nth)[which])
        if mask is not None:  # the mask that works in the right model is passed to both
            probe.__dict__["_mask"] = mask
        return look(probe)

    return View(caption, x, y, lambda: run(0), lambda: run(1), **options)


# --- looks at a probe ---------------------------------------------------------------------------


def flow(probe: Probe) -> Tensor:
    """(outputs, inputs): how much an output changes with an input."""
    return dependence(probe, T)


def flow_in_training(probe: Probe) -> Tensor:
    return dependence(probe, T, train=True)


def weights(probe: Probe, event: int = 0) -> Tensor:
    """(Q, K): the first head's weights."""
    found = probe.attention[event].weights
    return found.reshape(-1, *found.shape[-2:])[0]


def long_weights(probe: Probe) -> Tensor:
    trace, _ = probe.trace(probe.inputs(length=T))
    found = find_attention(trace)[0].weights
    return found.reshape(-1, *found.shape[-2:])[0]


def window_weights(which: int) -> Tensor:
    """(Q, K) with the mutant's window, and with one that is a key narrower."""
    chosen = next(m for m in MUTANTS if m.bug == "window-off-by-one" and m.source == "gpt")
    line = ("-self.window - 1", "-self.window")
    edits = [(old, new.replace(*line) if which else new) for old, new in chosen.edits]
    torch.manual_seed(0)
    return long_weights(Probe(SOURCES["gpt"].model(edits)))


def weights_in_training(probe: Probe) -> Tensor:
    trace, _ = probe.trace(probe.base, train=True)
    found = find_attention(trace)[0].weights
    return found.reshape(-1, *found.shape[-2:])[0]


def row_sums(probe: Probe) -> Tensor:
    return weights(probe).sum(-1)


def cross_weights(probe: Probe) -> Tensor:
    """(Q, K) of the attention over the source: the one that is not square."""
    tables = [each.weights for each in probe.attention]
    table = next(each for each in tables if each.shape[-1] != each.shape[-2])
    return table.reshape(-1, *table.shape[-2:])[0]


def chunk_weights(probe: Probe) -> Tensor:
    """(Q, K) of the last two tokens after a cache of five."""
    form = find_cache(probe)
    inputs = probe.inputs(batch=1, length=7)
    first, rest = (inputs.with_stream(inputs.stream[:, at]) for at in (slice(5), slice(5, 7)))
    cache = form.read(probe.raw(first, extra=form.extra(0, 1, None)))
    trace, _ = probe.trace(rest, extra=form.extra(5, 1, cache))
    found = find_attention(trace)[0].weights
    return found.reshape(-1, *found.shape[-2:])[0]


def rows(probe: Probe) -> Tensor:
    """(rows, rows): how much a row's outputs change when another row is replaced."""
    inputs = probe.inputs(batch=3)
    base = probe.run(inputs)
    table = torch.zeros(3, 3)
    for other in range(3):
        changed = probe.run(same_inputs(probe, inputs, 0, other))
        table[:, other] = torch.tensor([probe.differs(base[r], changed[r]) for r in range(3)])
    return table


def rows_with_cache(probe: Probe) -> Tensor:
    form, inputs = find_cache(probe), probe.inputs(batch=3)
    pieces = [inputs.length - 2, 1, 1]
    base = form.run(probe, inputs, pieces)
    table = torch.zeros(3, 3)
    for other in range(3):
        changed = form.run(probe, same_inputs(probe, inputs, 0, other), pieces)
        table[:, other] = torch.tensor([probe.differs(base[r], changed[r]) for r in range(3)])
    return table


def rows_by_mask(probe: Probe) -> Tensor:
    """(rows, rows): how much a row's outputs change with the mask of another."""
    mask, inputs = mask_of(probe), probe.inputs(batch=3)
    real = torch.ones(3, inputs.length, dtype=torch.bool)
    base = probe.run(inputs, extra=mask.arguments(real))
    table = torch.zeros(3, 3)
    for other in range(3):
        hidden = real.clone()
        hidden[other, 2:4] = False
        changed = probe.run(inputs, extra=mask.arguments(hidden))
        table[:, other] = torch.tensor([probe.differs(base[r], changed[r]) for r in range(3)])
    return table


def mask_of(probe: Probe) -> PaddingMask:
    known = probe.__dict__.get("_mask")
    return known or find_mask(probe).mask or find_mask(probe).tried


def by_position(one: Tensor, other: Tensor) -> Tensor:
    """(T,): how much two outputs (T, *) differ at each position."""
    return (one - other).abs().amax(dim=-1)


def filling(probe: Probe, left: bool) -> Tensor:
    """(T,): how much a row changes with what stands in its two padded positions."""
    (one, real), (two, _) = padded(probe, 2, left, 0), padded(probe, 2, left, 1)
    extra = mask_of(probe).arguments(real)
    outputs = [probe.run(each, extra=extra)[0] for each in (one, two)]
    gap = by_position(*outputs) if probe.per_token else (outputs[0] - outputs[1]).abs()
    return gap[real[0]] if probe.per_token else gap


def alone(probe: Probe) -> Tensor:
    """(T,): how much a left-padded row differs from the row alone."""
    inputs, real = padded(probe, 2, True, 0)
    mask = mask_of(probe)
    short = inputs.rows(0).with_stream(inputs.stream[:1, 2:])
    single = probe.run(short, extra=mask.arguments(real[:1, 2:]))[0]
    return by_position(single, probe.run(inputs, extra=mask.arguments(real))[0, 2:])


def steps(probe: Probe) -> Tensor:
    """(T,): how much single tokens with a cache differ from the whole text."""
    form, inputs = find_cache(probe), probe.inputs(batch=2)
    pieces = [inputs.length - 3, 1, 1, 1]
    return by_position(form.run(probe, inputs, pieces)[0], probe.run(inputs)[0])


def second_use(probe: Probe) -> Tensor:
    return by_position(probe.run(probe.base)[0], probe.run(probe.base)[0])


def calls(probe: Probe, train: bool = False) -> Tensor:
    """(8,): one output number in eight calls with the same input."""
    return torch.stack(
        [probe.run(probe.base, seed=seed, train=train)[0, -1].sum() for seed in range(8)]
    )


def order(probe: Probe) -> Tensor:
    """(T,): outputs of reordered tokens against outputs that are reordered."""
    inputs = probe.inputs(batch=1)
    turned = inputs.with_stream(inputs.stream.flip(1))
    return by_position(probe.run(inputs)[0], probe.run(turned).flip(1)[0])


def equal_tokens(probe: Probe) -> Tensor:
    """(Q, K): scores of equal tokens, which may depend on the distance only."""
    event = _equal(probe)
    return (event.q @ event.k.transpose(-1, -2)).reshape(-1, probe.length, probe.length)[0]


def equal_values(probe: Probe) -> Tensor:
    """(T, D): values of equal tokens."""
    value = _equal(probe).v
    return value.reshape(-1, *value.shape[-2:])[0]


def _equal(probe: Probe) -> object:
    inputs = probe.inputs(batch=1)
    stream = inputs.stream[:, :1].expand_as(inputs.stream).clone()
    trace, _ = probe.trace(inputs.with_stream(stream))
    return find_attention(trace)[0]


def key_minus(probe: Probe, other: str) -> Tensor:
    """(T, D): keys minus values, or minus queries, of the first head."""
    event = probe.attention[0]
    rest = getattr(event, other)
    key = event.k if event.k.shape == rest.shape else event.k.transpose(-1, -2)
    return (key - rest).reshape(-1, *rest.shape[-2:])[0].abs()


def gradient_sizes(probe: Probe) -> Tensor:
    """The size of each parameter's gradient; 0 where there is none."""
    probe.model.zero_grad(set_to_none=True)
    probe.run(probe.base, grad=True).pow(2).mean().backward()
    found = [p.grad for p in probe.model.parameters()]
    return torch.tensor([0.0 if g is None else float(g.norm()) for g in found])[:24]


def spread(probe: Probe) -> Tensor:
    """(T,): the standard deviation of each position's output over the width."""
    return probe.base_output[0].std(dim=-1)


def positions_looked_up(probe: Probe) -> Tensor:
    """Positions of 40 tokens; NaN where the model refuses the text."""
    for length in (40, 24):
        try:
            trace, _ = probe.trace(probe.inputs(batch=1, length=length))
        except Exception:
            continue
        tables = [op.argument(0, "input").flatten() for op in trace.named("embedding")]
        found = next(each for each in tables if each[0] == 0 and each[1] == 1).double()
        return torch.cat((found, torch.full((40 - length,), math.nan)))
    raise LookupError("no length was taken")


def targets_compared(probe: Probe) -> Tensor:
    """(T, T): how much the gradient at an output changes with a target."""
    inputs, labels = probe.inputs(batch=1), probe.inputs(batch=1, seed=9).stream

    def gradient(targets: Tensor) -> Tensor:
        raw = probe.raw(inputs, extra={"targets": targets}, grad=True)
        (found,) = torch.autograd.grad(raw[1], raw[0])
        return found.view(inputs.length, -1)

    base = gradient(labels)
    columns = []
    for at in range(inputs.length):
        other = labels.clone()
        other[0, at] = (other[0, at] + 7) % 40 + 4
        columns.append((gradient(other) - base).abs().amax(dim=-1))
    return torch.stack(columns, dim=1)


def loss_by_padding(probe: Probe) -> Tensor:
    """The loss as more and more targets of the second and third row are ignored."""
    labels, found = probe.inputs(seed=9).stream, []
    for ignored in range(probe.length):
        ragged = labels.clone()
        ragged[1:, probe.length - ignored :] = -1
        found.append(float(probe.raw(probe.base, extra={"targets": ragged})[1]))
    return torch.tensor(found)


def first_loss(probe: Probe) -> Tensor:
    """The loss of the new model, and ln V."""
    logits = probe.run(probe.base, model=probe.plain)
    labels = probe.inputs(seed=9).stream
    loss = F.cross_entropy(logits.flatten(0, 1).double(), labels.flatten())
    return torch.tensor([float(loss), math.log(logits.shape[-1])])


def checkpointing(preserve: bool) -> Tensor:
    """How much gradients change with activation checkpointing, for each parameter."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.Linear(32, 16))
    x = torch.randn(4, 16, requires_grad=True)
    found = []
    for again in (False, True):
        torch.manual_seed(1)
        y = (
            checkpoint(block, x, use_reentrant=False, preserve_rng_state=preserve)
            if again
            else block(x)
        )
        found.append(torch.autograd.grad(y.sin().sum(), list(block.parameters())))
    return torch.tensor([float((a - b).norm() / a.norm()) for a, b in zip(*found, strict=True)])


# --- numbers of the lines themselves ---------------------------------------------------------------

WIDTHS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


def entropies(factor: Callable[[float], float]) -> Tensor:
    """The entropy of the weights of 32 random keys, for each width of a head."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for width in WIDTHS:
        q, k = (torch.randn(64, 32, int(width), generator=generator) for _ in range(2))
        w = (q @ k.mT * factor(width)).softmax(-1)
        found.append(float(-(w * w.clamp_min(1e-30).log()).sum(-1).mean()))
    return torch.tensor(found)


def scale(caption: str, factor: Callable[[float], float]) -> View:
    return View(
        caption,
        "width of a head",
        "entropy of the weights (nats)",
        lambda: entropies(factor),
        lambda: entropies(lambda width: width**-0.5),
        kind="lines",
        ticks=WIDTHS,
    )


def deep_gradients(bug: str, source: str, cls: str, **options: object) -> Callable[[int], Tensor]:
    """The size of the first gradient in each of twelve blocks."""

    def run(which: int) -> Tensor:
        edits = next(m for m in MUTANTS if m.bug == bug and m.source == source).edits
        file = SOURCES[source].file
        torch.manual_seed(0)
        model = Source(source, file, class_of(cls, layers=12, **options)).model((edits, ())[which])
        output = model.eval()(torch.randint(4, 50, (4, 12)))
        output = output[0] if isinstance(output, tuple) else output
        (output * torch.randn(output.shape)).mean().backward()
        blocks = next(part for part in model.modules() if isinstance(part, nn.ModuleList))
        sizes = (float(first_matrix(each).weight.grad.norm()) for each in blocks)
        return torch.tensor([max(1e-12, each) for each in sizes])

    return run


def first_matrix(block: nn.Module) -> nn.Linear:
    return next(part for part in block.modules() if isinstance(part, nn.Linear))


def hidden_weight(fill: float) -> Tensor:
    """The weight of a hidden key whose score is larger and larger than the other one's."""
    scores = torch.linspace(0, 200, 41)
    pair = torch.stack((torch.zeros(41), scores + fill), dim=-1)
    return pair.softmax(-1)[:, 1]


def slices(of_time: bool) -> Tensor:
    """(T, E): which head reads which number of the queries."""
    heads = torch.zeros(8, 8)
    for head in range(4):
        part = slice(2 * head, 2 * head + 2)
        heads[part if of_time else slice(None), slice(None) if of_time else part] = head + 1
    return heads


def head_mixing(projected: bool) -> Tensor:
    """(E, H): how much an output feature depends on each head."""
    torch.manual_seed(0)
    output = nn.Linear(16, 16) if projected else nn.Identity()
    merged = torch.randn(16, requires_grad=True)
    table = torch.autograd.functional.jacobian(output, merged).abs()
    return table.view(16, 4, 4).sum(-1)


def gelus(tanh: bool) -> Tensor:
    x = torch.linspace(-4, 4, 81, dtype=torch.float64)
    return F.gelu(x, approximate="tanh" if tanh else "none") - F.gelu(x)


def tied(shared: bool) -> Tensor:
    """The distance of embedding and head in 20 steps of training."""
    torch.manual_seed(0)
    table, head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
    nn.init.normal_(table.weight, std=0.1)
    if shared:
        head.weight = table.weight
    else:
        head.weight.data = table.weight.data.clone()
    optimizer = torch.optim.SGD({*table.parameters(), *head.parameters()}, lr=1.0)
    tokens, found = torch.randint(20, (64,)), []
    for _ in range(20):
        found.append(float((table.weight - head.weight).norm()))
        loss = F.cross_entropy(head(table(tokens[:-1])), tokens[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.tensor(found)


def sinusoid_table(half: bool) -> Tensor:
    """(positions, columns) of the encoding."""
    source = SOURCES["encoder"]
    edits = next(
        m for m in MUTANTS if m.bug == "sinusoid-frequency" and m.source == "encoder"
    ).edits
    return source.model(edits if half else ()).pe[:48]


def next_token(shift: bool) -> Tensor:
    """The training loss of a small model, with targets shifted by one and not."""
    torch.manual_seed(0)
    model = Source("gpt", file_of("compact_gpt"), class_of("GPT", layers=1)).model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens, found = torch.randint(4, 50, (64, 12)), []
    for step in range(120):
        batch = tokens[torch.randint(64, (16,), generator=torch.Generator().manual_seed(step))]
        inputs, targets = (batch[:, :-1], batch[:, 1:]) if shift else (batch, batch)
        loss = model.train()(inputs, targets.contiguous())[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return torch.tensor(found)


def graph_sizes(detach: bool) -> Tensor:
    """Operations that a backward pass would walk through after each segment."""
    layer, memory, found = nn.Linear(4, 4), torch.zeros(2, 4), []
    for _ in range(8):
        memory = torch.tanh(layer(torch.randn(2, 4) + memory))
        found.append(_graph(memory.grad_fn, set()))
        memory = memory.detach() if detach else memory
    return torch.tensor(found, dtype=torch.float32)


def _graph(node: object, seen: set[object]) -> int:
    if node is None or node in seen:
        return 0
    seen.add(node)
    return 1 + sum(_graph(after, seen) for after, _ in node.next_functions)


def half_scores(first: bool) -> Tensor:
    """The largest score in float16, as activations grow; NaN where it overflows."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(8, 64, generator=generator) for _ in range(2))
    found = []
    for size in range(1, 61, 3):
        a, b = (size * q).half(), (size * k).half()
        scores = (a / 8) @ b.T if first else (a @ b.T) / 8
        found.append(float(scores.max()) if bool(scores.isfinite().all()) else math.nan)
    return torch.tensor(found)


def projected_per_step(cached: bool) -> Tensor:
    """Source positions that are projected at each of eight steps."""
    projection, source, seen = nn.Linear(8, 16), torch.randn(1, 6, 8), []
    projection.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    kept, found = None, []
    for _ in range(8):
        before = sum(seen)
        kept = kept if cached and kept is not None else projection(source)
        found.append(float(sum(seen) - before))
    return torch.tensor(found)


def both(run: Callable[[int], Tensor]) -> dict[str, Callable[[], Tensor]]:
    return {"wrong": lambda: run(0), "right": lambda: run(1)}


def switch(run: Callable[[bool], Tensor], right: bool) -> dict[str, Callable[[], Tensor]]:
    return {"wrong": lambda: run(not right), "right": lambda: run(right)}


KEEP = PaddingMask("attention_mask", "BT", hide=False, integer=True)
HIDE = PaddingMask("key_padding_mask", "BT", hide=True)
IO, QK, RR = ("input", "output"), ("key", "query"), ("row replaced", "row of outputs")
FLOW = "Output i against input j, darker where a change has more effect."
PLACES = ("position", "difference")
VIEWS = {
    "future-leak": planted("future-leak", flow, *IO, f"{FLOW} Above the diagonal nothing may be coloured.", nth=2, log=True),
    "future-leak-through-norm": planted("future-leak-through-norm", flow, *IO, f"{FLOW} Statistics over time connect everything, weakly.", log=True),
    "future-leak-through-pooling": planted("future-leak-through-pooling", flow, *IO, f"{FLOW} The mean is in every position.", log=True),
    "future-leak-through-batch": planted("future-leak-through-batch", flow_in_training, *IO, f"{FLOW} In train mode.", log=True),
    "batch-coupling": planted("batch-coupling", rows, *RR, "Three rows of a batch: each may change with itself alone.", source="gpt", log=True),
    "reach-too-short": planted("reach-too-short", flow, *IO, f"{FLOW} Old inputs are not used.", log=True),
    "window-off-by-one": View("Weights of a head with `window = 4`: each query should see four keys.", *QK, **both(window_weights)),
    "padding-leak-left": planted("padding-leak-left", lambda p: filling(p, True), *PLACES, "How much real tokens change with what stands in the padding on their left.", kind="bars", mask=KEEP),
    "padding-leak-right": planted("padding-leak-right", lambda p: filling(p, False), *PLACES, "How much real tokens change with what stands in the padding on their right.", kind="bars", source="encoder", mask=HIDE),
    "padding-moves-positions": planted("padding-moves-positions", alone, *PLACES, "A left-padded row minus the row alone.", kind="bars", mask=KEEP),
    "mask-ignored": planted("mask-ignored", lambda p: filling(p, False), *PLACES, "How much real tokens change with what stands in masked positions.", kind="bars", source="encoder", mask=HIDE),
    "mask-inverted": planted("mask-inverted", weights, *QK, "Weights of a causal head: only the future is seen.", source="gpt"),
    "mask-broadcast-wrong": planted("mask-broadcast-wrong", rows_by_mask, "mask of row", "row of outputs", "Which rows change with whose mask.", mask=HIDE, log=True),
    "mask-lost-on-slow-path": planted("mask-lost-on-slow-path", flow_in_training, *IO, f"{FLOW} In train mode; in eval mode both are like the right one.", log=True),
    "finite-mask": View("The weight of a hidden key as its score grows: with -100 it comes back.", "score above the other key's", "weight of the hidden key", lambda: hidden_weight(-100.0), lambda: hidden_weight(-math.inf), kind="lines", ticks=tuple(range(0, 201, 5))),
    "nan-row": planted("nan-row", weights, *QK, "Weights where query 0 sees no key: its row is NaN (red).", source="gpt"),
    "causal-aligned-top-left": planted("causal-aligned-top-left", chunk_weights, *QK, "Weights of the last two of seven tokens, the first five in a cache."),
    "scale-missing": scale("Entropy of the weights of 32 random keys: without a scale wide heads look at one key.", lambda width: 1.0),
    "scale-by-model-width": scale("Entropy of the weights of 32 random keys, with eight heads: flatter than meant.", lambda width: (8 * width) ** -0.5),
    "scale-applied-twice": scale("Entropy of the weights of 32 random keys: nearly uniform, the wider the more.", lambda width: 1 / width),
    "scale-inverted": scale("Entropy of the weights of 32 random keys: one-hot at once.", lambda width: width**0.5),
    "softmax-axis": planted("softmax-axis", weights, *QK, "Weights of a head: rows should sum to one; here columns do."),
    "softmax-before-mask": planted("softmax-before-mask", row_sums, "query", "sum of its weights", "What the weights of each query sum to.", kind="bars"),
    "heads-mixed-by-view": planted("heads-mixed-by-view", flow, *IO, f"{FLOW} Queries of other positions carry the future back.", log=True),
    "heads-slice-time": View("Which head (colour) reads which numbers of the queries (time down, width across).", "width", "time", **switch(slices, False)),
    "qk-swapped-cross": planted("qk-swapped-cross", cross_weights, *QK, "Weights of cross-attention: seven target tokens should ask five source tokens."),
    "value-projection-shared": planted("value-projection-shared", lambda p: key_minus(p, "v"), "width", "position", "|keys - values| of a head: with a shared projection they are the same."),
    "key-projection-shared": planted("key-projection-shared", lambda p: key_minus(p, "q"), "width", "position", "|keys - queries| of a head: with a shared projection they are the same."),
    "output-projection-missing": View("How much each output feature depends on each of four heads.", "head", "feature", **switch(head_mixing, True)),
    "residual-missing": View("Size of the gradient in twelve blocks, logarithmic.", "block", "gradient", kind="bars", log=True, **both(deep_gradients("residual-missing", "gpt", "GPT"))),
    "norm-misplaced": View("Size of the gradient in twelve blocks of a new model, logarithmic.", "block", "gradient", kind="bars", log=True, **both(deep_gradients("norm-misplaced", "pre_encoder", "PaddedEncoder", norm_first=True))),
    "norm-over-time": planted("norm-over-time", spread, "position", "spread over the width", "Standard deviation of each position's output: a norm over the width makes it 1 everywhere (here: times the norm's weights).", kind="bars"),
    "gelu-variant": View("The tanh approximation minus the exact GELU.", "x", "difference", kind="lines", ticks=tuple(x / 10 for x in range(-40, 41)), **switch(gelus, False)),
    "tied-weights-broken": View("Distance of embedding and head in 20 steps of training.", "step", "distance", kind="lines", ticks=tuple(range(20)), **switch(tied, True)),
    "permutation-equivariant": planted("permutation-equivariant", order, *PLACES, "Outputs of a text and of the text backwards, laid over each other: without positions they are equal.", kind="bars", source="encoder"),
    "positions-not-offset-in-cache": planted("positions-not-offset-in-cache", steps, *PLACES, "Single tokens with a cache against the whole text.", kind="bars", source="rotary"),
    "rotary-pairs": planted("rotary-pairs", equal_tokens, *QK, "Scores of equal tokens: they may depend on the distance only, so diagonals have one colour."),
    "rotary-on-values": planted("rotary-on-values", equal_values, "width", "position", "Values of equal tokens: all rows should be the same."),
    "sinusoid-frequency": View("The table of positions: without 2i the low frequencies are missing, and far positions look alike.", "column", "position", **switch(sinusoid_table, False)),
    "positions-past-length-wrap": planted("positions-past-length-wrap", positions_looked_up, "token", "its position", "Positions of a text longer than the table: used again, or refused.", kind="lines", ticks=tuple(range(40))),
    "cache-differs": planted("cache-differs", steps, *PLACES, "Single tokens with a cache against the whole text.", kind="bars"),
    "cache-mutated-in-place": planted("cache-mutated-in-place", second_use, *PLACES, "The same call twice: the second output minus the first.", kind="bars", source="gpt"),
    "cache-shared-between-rows": planted("cache-shared-between-rows", rows_with_cache, *RR, "Three rows with a cache: each may change with itself alone.", log=True),
    "cross-attention-recomputed": View("Source positions that are projected at each step of writing.", "step", "positions", kind="bars", **switch(projected_per_step, True)),
    "loss-not-shifted": View("Training loss on random tokens, which nothing can predict: only copying falls to zero this fast.", "step", "loss", kind="lines", ticks=tuple(range(120)), **switch(next_token, True)),
    "loss-shifted-twice": planted("loss-shifted-twice", targets_compared, "target", "output", "Which target each output is compared with."),
    "loss-counts-padding": planted("loss-counts-padding", loss_by_padding, "padded positions of two rows", "loss", "The loss of the same outputs as more targets are padding.", kind="lines", ticks=tuple(range(7))),
    "mean-of-means": planted("mean-of-means", loss_by_padding, "padded positions of two rows", "loss", "The loss of the same outputs as two of three rows get shorter.", kind="lines", ticks=tuple(range(7))),
    "initial-loss": planted("initial-loss", first_loss, "the model, and ln V", "loss", "The loss of a new model, beside ln V.", kind="bars"),
    "dead-parameters": planted("dead-parameters", gradient_sizes, "parameter", "gradient", "Size of the gradient of each parameter, logarithmic.", kind="bars", log=True),
    "dropout-in-eval": planted("dropout-in-eval", calls, "call", "one output", "The same input eight times in eval mode.", kind="lines", ticks=tuple(range(8))),
    "dropout-on-scores": planted("dropout-on-scores", weights_in_training, *QK, "Weights in train mode: a dropped -inf is NaN (red), and others move.", source="gpt"),
    "dropout-not-applied": planted("dropout-not-applied", lambda p: calls(p, True), "call", "one output", "The same input eight times in train mode.", kind="lines", source="rotary", ticks=tuple(range(8))),
    "eval-nondeterministic": planted("eval-nondeterministic", calls, "call", "one output", "The same input eight times in eval mode.", kind="lines", ticks=tuple(range(8))),
    "gradient-through-memory": View("Operations that the backward pass of each segment walks through.", "segment", "operations", kind="lines", ticks=tuple(range(8)), **switch(graph_sizes, True)),
    "half-precision-overflow": View("The largest score in float16 as activations grow; the line ends where it is infinite.", "size of the activations", "score", kind="lines", ticks=tuple(range(1, 61, 3)), **switch(half_scores, True)),
    "checkpointing-changes-gradient": View("How much the gradient of each parameter changes with activation checkpointing.", "parameter", "relative change", kind="bars", **switch(checkpointing, True)),
}  # fmt: skip
