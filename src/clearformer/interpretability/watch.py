"""`watch`: the attention of any torch module, recorded while it runs.

    with cf.watch(module) as seen:
        module(input_ids)
    seen.weights(0)             # of its first attention: (B, H, Q, K)

It finds `scaled_dot_product_attention`, `nn.MultiheadAttention` and softmaxes between two matrix
products, in modules of Hugging Face, of others or your own, as `verify` does. The module
computes what it always computes; nothing in it is changed.

Axes: B batch, H heads, Q queries, K keys, D head width.
"""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.verification.attention import Attention, find_attention
from clearformer.verification.noise import no_fast_path
from clearformer.verification.trace import InsideRecorder

MAX_VALUES = 1 << 28  # the largest table of weights that is kept: 1 GB in float32
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")


@dataclass(frozen=True)
class WatchedAttention:
    """One attention of a forward pass.

    Attributes:
        name (str): The module that computed it, as in `named_modules`.
        line (str): The line of code that did.
        weights (Tensor): (B, H, Q, K), as they meet the values; of a fused attention without its
            dropout.
        q, k, v (Tensor or None): As they enter the attention.
        output (Tensor or None): Weights times values, before the output projection.
        fused (bool): Whether torch's fused attention computed it, so that the weights were computed
            again from its queries and keys.

    Weights that the module folds into one axis are taken to be sorted by sequence, then by head.
    """

    name: str
    line: str
    weights: Tensor
    q: Tensor | None
    k: Tensor | None
    v: Tensor | None
    output: Tensor | None
    fused: bool


class Watch:
    """What a module computed inside ``with watch(module) as seen``.

    Attributes:
        attention (list of WatchedAttention): In the order of the computation; of every pass.
        inputs (dict): The first tensor that each submodule took in its last call, by its name.
        outputs (dict): The first tensor that each submodule returned in its last call.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.attention: list[WatchedAttention] = []
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self._entered: ExitStack | None = None

    def __repr__(self) -> str:
        return f"<Watch of {type(self.module).__name__}: {len(self.attention)} attentions>"

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run the module and record it; returns what the module returns."""
        with self:
            return self.module(*args, **kwargs)

    def __enter__(self) -> Watch:
        if self._entered is not None:
            raise ValueError("this watch is running already: make another with watch(module)")
        self.attention, self.inputs, self.outputs = [], {}, {}
        stack = ExitStack()
        try:
            recorder = InsideRecorder(self.module, MAX_VALUES)
            for name, module in self.module.named_modules():
                takes, returns = self._record(name, recorder)
                stack.callback(module.register_forward_pre_hook(takes, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(returns).remove)
            stack.callback(self._find, recorder)
            stack.enter_context(no_fast_path())
            stack.enter_context(recorder.recording())
        except BaseException:
            stack.close()
            raise
        self._entered = stack
        return self

    def __exit__(self, *exception: object) -> None:
        stack, self._entered = self._entered, None
        assert stack is not None
        stack.close()

    def _record(self, name: str, recorder: InsideRecorder) -> tuple[Any, Any]:
        """Hooks that copy what a submodule takes and returns, since models write in place."""

        def takes(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
            given = _first((*args, *kwargs.values()))
            if given is not None:
                self.inputs[name] = recorder.copied(given)

        def returns(module: nn.Module, args: Any, output: Any) -> None:
            returned = _first(output)
            if returned is not None:
                self.outputs[name] = recorder.copied(returned)

        return takes, returns

    def _find(self, recorder: InsideRecorder) -> None:
        with torch.no_grad():
            found = (self._watched(each) for each in find_attention(recorder.trace))
            self.attention = [each for each in found if each is not None]

    def _watched(self, found: Attention) -> WatchedAttention | None:
        if found.weights is None:
            return None
        output = None if found.output is None else found.output.value
        dtype = found.weights.dtype if found.q is None else found.q.dtype
        return WatchedAttention(
            found.place.module,
            found.place.line,
            self._batched(found.place.module, found.weights.detach().to(dtype)),
            found.q,
            found.k,
            found.v,
            output,
            found.fused,
        )

    def _batched(self, name: str, weights: Tensor) -> Tensor:
        """Weights (B, H, Q, K), by what the module that computed them, or one around it, says."""
        if weights.dim() in (2, 4):
            return batched(weights, None)
        modules = dict(self.module.named_modules())
        while True:
            batch = self._batch(name, weights.shape[-2])
            if batch is not None and weights[..., 0, 0].numel() % batch == 0:
                return weights.reshape(batch, -1, *weights.shape[-2:])
            for attribute in HEADS:
                value = getattr(modules.get(name), attribute, None)
                if isinstance(value, int) and value > 0:
                    return batched(weights, value)
            if not name:
                return batched(weights, None)
            name = name.rpartition(".")[0]

    def _batch(self, name: str, queries: int) -> int | None:
        """How many sequences of this many tokens a module took, if its input says so."""
        given = self.inputs.get(name)
        if given is None or given.dim() != 3 or given.shape[1] != queries:
            return None
        return given.shape[0]

    # --- reading -----------------------------------------------------------------------------

    def weights(self, index: int = 0, head: int | None = None) -> Tensor:
        """Attention weights (B, H, Q, K) of one attention, or (B, Q, K) of a head."""
        found = self._at(index).weights
        if head is None:
            return found
        if not isinstance(head, int) or not 0 <= head < found.shape[1]:
            raise ValueError(f"head is {head!r}, but there are heads 0 to {found.shape[1] - 1}")
        return found[:, head]

    def _at(self, index: int) -> WatchedAttention:
        if not self.attention:
            raise ValueError(
                "no attention was recorded: call the module inside `with watch(module)`; it must "
                "use scaled_dot_product_attention, nn.MultiheadAttention or a softmax between two "
                "products, in Python code"
            )
        count = len(self.attention)
        if not isinstance(index, int) or not -count <= index < count:
            last = count - 1
            raise ValueError(f"index is {index!r}, but there are attentions 0 to {last}")
        return self.attention[index]

    # --- the page ----------------------------------------------------------------------------

    def html(
        self,
        tokens: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        row: int = 0,
    ) -> str:
        """The explorer's page of every head of every attention, as a file that works offline.

        Args:
            tokens (list of str, optional): The words at the queries, for every attention of as many
                tokens. Default: their positions.
            keys (list of str, optional): The words of another sequence that is attended to.
            row (int): Which sequence of the batch. Default: 0.
        """
        from clearformer.interpretability.watch_page import page

        self._at(0)
        return page(self, tokens, keys, row)

    def save(
        self,
        path: str | Path,
        tokens: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        row: int = 0,
    ) -> None:
        """Write the page to a file."""
        try:
            Path(path).write_text(self.html(tokens, keys, row), encoding="utf-8")
        except OSError as problem:
            raise ValueError(f"{path} cannot be written: {problem.strerror}") from None

    def explore(
        self,
        tokens: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        row: int = 0,
    ) -> Path:
        """Write the page to a temporary file and open it in the browser; returns the file."""
        folder = Path(tempfile.mkdtemp(prefix="clearformer-watch-"))
        path = folder / "watched.html"
        self.save(path, tokens, keys, row)
        webbrowser.open(path.as_uri())
        return path

    def _repr_html_(self) -> str:
        from clearformer.explore.notebook import frame

        return frame(self.html()) if self.attention else repr(self)


def watch(module: nn.Module) -> Watch:
    """Record the attention weights, inputs and outputs of any torch module while it runs.

    Args:
        module (nn.Module): A module that uses attention, of Hugging Face, of others or your own.

    Returns:
        Watch: A context manager; ``seen.attention`` are the attentions of all passes inside, in
        order, ``seen.weights(0, head=1)`` the weights of a head.

    Example:
        >>> import torch, clearformer as cf
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> with cf.watch(layer) as seen:
        ...     _ = layer(torch.randn(1, 5, 8))
        >>> seen.weights(0).shape
        torch.Size([1, 2, 5, 5])
    """
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"watch takes an nn.Module, but got a {type(module).__name__}: pass the module itself, "
            f"as in watch(model.module)"
        )
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the module'} is TorchScript, whose operations cannot be seen: pass the "
                f"module as it was before torch.jit"
            )
    return Watch(module)


def batched(weights: Tensor, heads: int | None) -> Tensor:
    """Weights (B, H, Q, K), however their first axes were folded."""
    if weights.dim() == 4:
        return weights
    queries, keys = weights.shape[-2:]
    if weights.dim() == 3 and heads is not None and len(weights) % heads == 0:
        return weights.view(-1, heads, queries, keys)
    if weights.dim() < 4:
        return weights.reshape(-1, 1, queries, keys)
    return weights.reshape(-1, *weights.shape[-3:])


def _first(value: Any) -> Tensor | None:
    """The first tensor in what a module takes or returns."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return None
    every: Iterable[Tensor | None] = (_first(each) for each in value)
    return next((each for each in every if each is not None), None)
