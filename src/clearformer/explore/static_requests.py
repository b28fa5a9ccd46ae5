"""Which requests the pages send for one model and one text, without a reader who changes anything.

Each function sends its requests through `ask`, which keeps the answers. What a reader could ask
besides (another text, a change of the model, other settings) needs the server; the pages say so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

MAX_PROJECTIONS = 3_000  # one for each component of each query, key and value
MAX_POINTS = 64  # of a map of embeddings, with their neighbours
MAX_WORDS = 12  # of a mask without a model
MAX_FRAMES = 8  # checkpoints at which one head is shown
SEED = 1  # of the page's first shuffle and its first draw
WIDTHS = tuple(2**n for n in range(1, 11))
PATTERNS = ("full", "causal", "local", "strided", "fixed")
MEMORIES = (0, 8, 16, 32)
SEGMENT = 16
POSITIONS = 64


class Ask(Protocol):
    def __call__(self, path: str, body: Any = None, **parameters: str | int) -> Awaitable[Any]: ...


def shuffled(count: int) -> list[int]:
    """The page's first order of words (web/src/lib/mathematics.ts)."""
    order = list(range(count))
    state = (SEED * 2654435761 + 12345) % 2**32
    for i in range(count - 1, 0, -1):
        state = (state * 1664525 + 1013904223) % 2**32
        j = state * (i + 1) // 2**32
        order[i], order[j] = order[j], order[i]
    return order


async def common(ask: Ask) -> None:
    """What needs no model: source code, scaling, patterns and memory."""
    for symbol in (await ask("/api/source"))["symbols"]:
        await ask("/api/source", symbol=symbol)
    for d in WIDTHS:
        await ask("/api/scaling", d=d, n=256, seed=SEED)
    for kind in PATTERNS:
        for stride in (4, 8, 16):
            for layers in (1, 2, 3):
                await ask("/api/patterns", kind=kind, n=POSITIONS, stride=stride, layers=layers)
    for memory in MEMORIES:
        for layers in (1, 2, 3, 4):
            segments = min(16, max(2, -(-layers * memory // SEGMENT) + 2))
            await ask(
                "/api/memory", segment=SEGMENT, memory=memory, layers=layers, segments=segments
            )


async def of_model(ask: Ask, model: dict[str, Any]) -> dict[str, Any]:
    """What needs no text; returns the plan of the model."""
    path = f"/api/models/{model['id']}"
    plan = await ask(f"{path}/blueprint")
    await ask(f"{path}/parameters")
    await ask("/api/positions", model=model["id"], checkpoint=model["default_checkpoint"])
    return plan if isinstance(plan, dict) else {"stacks": []}


async def of_text(ask: Ask, model: dict[str, Any], plan: dict[str, Any], text: str) -> bool:
    """What the pages ask about a text; False if the model cannot read it."""
    base = {"model": model["id"], "checkpoint": model["default_checkpoint"], "text": text}
    pair = {"target": ""} if "cross" in model["parts"] else {}
    trace = await ask("/api/traces", {**base, **pair})
    if trace is None:
        return False
    await _trace(ask, model, plan, trace)
    await _positions(ask, model, base, pair)
    await _maps_of_embeddings(ask, model, base)
    task: Callable[..., Awaitable[None]] | None = {
        "generate": _generate, "classify": _classify, "fill": _fill, "translate": _translate,
    }.get(model["tasks"][0])  # fmt: skip
    if task is not None:
        await task(ask, model, base, trace)
    await _checkpoints(ask, model, base)
    await _architectures(ask, model, base)
    return True


async def _trace(
    ask: Ask, model: dict[str, Any], plan: dict[str, Any], trace: dict[str, Any]
) -> None:
    """Every head, norm, MLP and vector of a trace."""
    path = f"/api/traces/{trace['id']}"
    tasks = model["tasks"]
    await ask(f"{path}/flow")
    await ask(f"{path}/logits", i=-1)
    if not {"classify", "embed"} & set(tasks):
        await ask(f"{path}/lens", k=5)
    for layer, head, part in _heads(trace):
        await ask(f"{path}/head", layer=layer, head=head, part=part)
    for stack in plan["stacks"]:
        await _stack(ask, path, stack, trace, pair="cross" in model["parts"])
    await _projections(ask, path, model, trace)


async def _stack(
    ask: Ask, path: str, stack: dict[str, Any], trace: dict[str, Any], pair: bool
) -> None:
    part = stack["part"]
    named: dict[str, str | int] = {"part": part} if pair else {}
    count = len(trace["query_tokens"].get(part, trace["tokens"]))
    await ask(f"{path}/residual", **named)
    outer = {"embedding": stack["embedding"]["norm"], "final": stack["norm"]}
    for which in (name for name, norm in outer.items() if norm):
        for i in range(count):
            await ask(f"{path}/norm", layer=0, i=i, which=which, part=part)
    for block in stack["blocks"]:
        layer = block["layer"]
        norms = [step["which"] for step in block["steps"] if step["kind"] == "norm"]
        mlp = any(step["kind"] == "mlp" for step in block["steps"])
        for i in range(count):
            await ask(f"{path}/residual", layer=layer, i=i, **named)
            for which in norms:
                await ask(f"{path}/norm", layer=layer, i=i, which=which, part=part)
            units = await ask(f"{path}/mlp", layer=layer, i=i, part=part, k=16) if mlp else None
            for unit in units["units"] if units else ():
                await ask(f"{path}/unit", layer=layer, i=i, part=part, j=unit["j"])


async def _projections(ask: Ask, path: str, model: dict[str, Any], trace: dict[str, Any]) -> None:
    """How components of queries, keys and values are computed: all, or the first ones of each."""
    places = [
        (layer, head, part, which, i)
        for layer, head, part in _heads(trace)
        for which, tokens in (("q", "query_tokens"), ("k", "key_tokens"), ("v", "key_tokens"))
        for i in range(len(trace[tokens][part]))
    ]
    widths = range(min(model["d_head"], MAX_PROJECTIONS // max(1, len(places))))
    for layer, head, part, which, i in places:
        for d in widths:
            await ask(
                f"{path}/projection", layer=layer, head=head, part=part, which=which, i=i, d=d
            )


async def _positions(
    ask: Ask, model: dict[str, Any], base: dict[str, Any], pair: dict[str, str]
) -> None:
    """The page that shuffles the words, with and without positions and mask."""
    found = await ask("/api/traces", {**base, **pair, "mask": "none"})
    tokens = found["tokens"]
    if model["memory"] and tokens:
        edit = {"i": -1, "text": tokens[-1]["text"]}
        whole = await ask("/api/probe", {**base, "edit": edit, "mask": "none"})
        tokens = whole["tokens"] if whole else tokens
    for mask in ("none", "model") if model["causal"] else ("none",):
        for positions in (False, True):
            changed = {"permutation": shuffled(len(tokens)), "mask": mask, "positions": positions}
            await ask("/api/permute", {**base, **changed})


async def _maps_of_embeddings(ask: Ask, model: dict[str, Any], base: dict[str, Any]) -> None:
    """The map of tokens and that of positions, and the neighbours of the points of the text."""
    stacks = ("encoder", "decoder") if "cross" in model["parts"] else (None,)
    for kind, text in (("tokens", base["text"]), ("positions", "")):
        for part in stacks:
            body = {**base, "text": text, "axes": base["checkpoint"], "kind": kind, "part": part}
            found = await ask("/api/map", body)
            labels = found["map"]["labels"] if found and found["map"] else []
            first = [each["index"] for each in labels if kind == "positions" or each["given"]]
            for index in first[:MAX_POINTS] or [each["index"] for each in labels[:1]]:
                await ask("/api/neighbours", {**body, "index": index, "count": 10})


async def _generate(
    ask: Ask, model: dict[str, Any], base: dict[str, Any], trace: dict[str, Any]
) -> None:
    await ask("/api/coding", base)


async def _classify(
    ask: Ask, model: dict[str, Any], base: dict[str, Any], trace: dict[str, Any]
) -> None:
    await ask("/api/attribute", {**base, "method": "ig"})
    await _maps(ask, trace)


async def _fill(
    ask: Ask, model: dict[str, Any], base: dict[str, Any], trace: dict[str, Any]
) -> None:
    """The token in the middle, masked, as the page does."""
    typed = [token["i"] for token in trace["tokens"] if token["id"] == trace["mask_id"]]
    plain = [token["i"] for token in trace["tokens"] if not token["special"]]
    hidden = typed or plain[len(plain) // 2 :][:1]
    masked = await ask("/api/traces", {**base, "mask_at": hidden})
    for place in hidden if masked else ():
        await ask(f"/api/traces/{masked['id']}/logits", i=place)
    await ask("/api/corrupt", {"model": model["id"], "text": base["text"], "seed": SEED})


async def _translate(
    ask: Ask, model: dict[str, Any], base: dict[str, Any], trace: dict[str, Any]
) -> None:
    """The model's own translation."""
    own = await ask("/api/traces", base)
    if own:
        await _maps(ask, own)
        for i in range(len(own["query_tokens"]["decoder"])):
            await ask(f"/api/traces/{own['id']}/logits", i=i)


async def _checkpoints(ask: Ask, model: dict[str, Any], base: dict[str, Any]) -> None:
    """One head at every checkpoint, and the comparison with the first one."""
    default = base["checkpoint"]
    # The trace of the default one is known, and the server keeps only the latest few.
    for each in sorted(model["checkpoints"], key=lambda each: bool(each["id"] != default)):
        trace = await ask("/api/traces", {**base, "checkpoint": each["id"]})
        if trace:
            await _maps(ask, trace)
    others = [each for each in model["checkpoints"] if each["id"] != default]
    first = min(others, key=lambda each: int(each["step"]))["id"] if others else default
    a = {"model": base["model"], "checkpoint": default}
    b = {**a, "checkpoint": first}
    await ask("/api/compare", {"a": a, "b": b, "text": base["text"]})


async def _architectures(ask: Ask, model: dict[str, Any], base: dict[str, Any]) -> None:
    """The model beside those of other architectures; the masks of those that are not there."""
    trace = await ask("/api/traces", base)
    if trace:
        await _maps(ask, trace, "weights", "scores_masked")
        if model["tasks"][0] == "generate":
            await ask(f"/api/traces/{trace['id']}/logits", i=-1)
    words = min(MAX_WORDS, max(1, len(base["text"].split())))
    for kind in ("full", "causal"):
        await ask("/api/patterns", kind=kind, n=words)


async def _maps(ask: Ask, trace: dict[str, Any], *stages: str) -> None:
    for layer, head, part in _heads(trace):
        path = f"/api/traces/{trace['id']}/attention"
        for stage in stages or ("weights",):
            await ask(path, layer=layer, head=head, part=part, stage=stage)


def _heads(trace: dict[str, Any]) -> Iterator[tuple[int, int, str]]:
    for each in trace["parts"]:
        for layer in range(each["n_layers"]):
            for head in range(trace["n_heads"]):
                yield layer, head, each["part"]


def frames(checkpoints: list[dict[str, Any]], default: str) -> list[dict[str, Any]]:
    """At most MAX_FRAMES checkpoints: the default one, and others evenly over the list."""
    if len(checkpoints) <= MAX_FRAMES:
        return checkpoints
    last = len(checkpoints) - 1
    chosen = {round(n * last / (MAX_FRAMES - 2)) for n in range(MAX_FRAMES - 1)}
    return [each for n, each in enumerate(checkpoints) if n in chosen or each["id"] == default]
