"""Probe: a model with its calling convention, and copies for experiments.

Axes: B batch, T tokens, S source tokens, E model width, V vocabulary.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.verification.attention import Attention, find_attention
from clearformer.verification.calls import (
    Form,
    Inputs,
    Maker,
    candidates,
    lengths,
    main_output,
    widths,
)
from clearformer.verification.claims import Claim, claim_of
from clearformer.verification.noise import (
    add_noise,
    default_dtype,
    no_fast_path,
    randomness,
    reduced,
    working_copy,
)
from clearformer.verification.signature import Parameter, config_of, parameters_of
from clearformer.verification.trace import Recorder, Trace

BATCH, SOURCE = 3, 5
SPECIAL = re.compile(
    r"(^|.*_)(pad|padding|bos|sos|eos|mask|sep|cls|unk|decoder_start|image)"
    r"(_(token|idx|id|index|ix))*"
)  # settings that name a token with a meaning of its own


class UncallableError(ValueError):
    """The module could not be called with anything that was tried."""

    def __init__(self, sentence: str, trace: Trace | None = None) -> None:
        super().__init__(sentence)
        self.trace = trace


class Probe:
    """A module, how to call it, and noisy copies of it in double precision."""

    def __init__(self, model: nn.Module, *, kind: str | None = None, seed: int = 0) -> None:
        self.seed = seed
        self.kind = kind
        self.name = type(model).__name__
        self.config = config_of(model)
        self.notes: list[str] = []
        self.was_training = model.training
        model, note = reduced(model)
        if note is not None:
            self.notes.append(note)
        if {str(each.device.type) for each in model.parameters()} - {"cpu", "meta"}:
            self.notes.append("looked at on the CPU")
        self.plain = working_copy(model).eval()  # as it was initialised or trained
        self.dtype = torch.float64
        self.plain.to(self.dtype)
        self.model = add_noise(working_copy(self.plain), seed).eval()
        self.vocabulary: int | None = None
        self.width: int | None = None
        self.failure: Trace | None = None
        self.supplied_mask: tuple[str, Maker] | None = None
        self.form, self.length = self._find_form()
        if self.dtype is torch.float64 and self._rounds:
            # It computes in float32 whatever it is given, so the masks of float64 overflow.
            self._set_dtype(torch.float32)
            self.forget()
        translates = self.form.source is not None and self.is_language_model
        self.claim: Claim = claim_of(self.model, self.base_trace, kind, translates)
        self._supply_causal_mask()

    # --- calling ---------------------------------------------------------------------------

    @cached_property
    def parameters(self) -> list[Parameter]:
        return parameters_of(self.model.forward)

    def parameter(self, *roles: str) -> list[Parameter]:
        """The parameters of the forward pass that have one of these roles."""
        return [each for each in self.parameters if each.role in roles]

    def accepts(self, name: str) -> bool:
        return any(each.name == name for each in self.parameters)

    @property
    def published(self) -> bool:
        """Whether it is a class of a library, with a config of its own kind."""
        return hasattr(getattr(self.model, "config", None), "to_dict")

    @property
    def takes_tokens(self) -> bool:
        return self.vocabulary is not None

    def inputs(self, batch: int = BATCH, length: int | None = None, seed: int = 0) -> Inputs:
        """Random tokens or vectors; ids are ordinary ones, not padding or marks."""
        length = self.length if length is None else length
        generator = torch.Generator().manual_seed(1000 * self.seed + seed)
        stream = self._draw((batch, length), self.takes_tokens, generator)
        source = None
        if self.form.source is not None:
            source = self._draw((batch, SOURCE), self.form.source_is_tokens, generator)
        return Inputs(stream, source)

    def _draw(self, shape: tuple[int, int], tokens: bool, generator: torch.Generator) -> Tensor:
        if not tokens:
            assert self.width is not None
            return torch.randn(*shape, self.width, generator=generator, dtype=self.dtype)
        ids = self.ordinary_ids
        return ids[torch.randint(len(ids), shape, generator=generator)]

    @cached_property
    def ordinary_ids(self) -> Tensor:
        """Ids that are not known to be special."""
        assert self.vocabulary is not None
        settings = [*self.config.items()]
        settings += [each for part in self.model.modules() for each in vars(part).items()]
        special = {v for name, v in settings if type(v) is int and SPECIAL.fullmatch(name)}
        ids = [each for each in range(self.vocabulary) if each not in special]
        ids = ids if len(ids) >= 4 else list(range(self.vocabulary))
        return torch.tensor(ids[:: max(1, len(ids) // 64)] if len(ids) > 64 else ids)

    def change(self, inputs: Inputs, row: int, position: int) -> Inputs:
        """The same inputs with another token or vector at one place."""
        stream = inputs.stream.clone()
        if stream.is_floating_point():
            stream[row, position] = -1.5 * stream[row, position] + 0.5
        else:
            ids = self.ordinary_ids
            at = int((ids == stream[row, position]).int().argmax())
            stream[row, position] = ids[(at + 1 + len(ids) // 2) % len(ids)]
            if stream[row, position] == inputs.stream[row, position]:
                stream[row, position] = ids[(at + 1) % len(ids)]
        return inputs.with_stream(stream)

    def raw(
        self,
        inputs: Inputs,
        *,
        extra: Mapping[str, Any] | None = None,
        train: bool = False,
        model: nn.Module | None = None,
        seed: int = 0,
        grad: bool = False,
        form: Form | None = None,
    ) -> Any:
        """What the module returns; random numbers are drawn from `seed`."""
        model = self.model if model is None else model
        positional, named = (form or self.form).arguments(inputs, self.dtype)
        if self.accepts("use_cache") and "use_cache" not in (extra or {}):
            named["use_cache"] = False
        for name, value in (extra or {}).items():
            named[name] = value(inputs) if inspect.isfunction(value) else value
        with (
            warnings.catch_warnings(),
            randomness(seed),
            default_dtype(self.dtype),
            no_fast_path(),
            torch.set_grad_enabled(grad),
            training_mode(model, train),
        ):
            warnings.simplefilter("ignore")
            return model(*positional, **named)

    def run(self, inputs: Inputs, **options: Any) -> Tensor:
        """Logits or hidden states (B, T, *), or (B, *) of a classifier."""
        return self.output(self.raw(inputs, **options), inputs)

    def output(self, raw: Any, inputs: Inputs) -> Tensor:
        found = main_output(raw)
        if found is None:
            raise UncallableError(_unknown_output(raw))
        batch, length = inputs.batch, inputs.length
        if self.form.time_first and found.dim() >= 2 and found.shape[:2] == (length, batch):
            found = found.transpose(0, 1)
        if found.dim() == 2 and found.shape[0] == batch * length and length > 1:
            found = found.view(batch, length, -1)
        if found.dim() == 3 and found.shape[1] != length and found.shape[2] == length:
            found = found.transpose(1, 2)
        return found

    def trace(self, inputs: Inputs, **options: Any) -> tuple[Trace, Tensor]:
        """The operations of a forward pass, and its output."""
        recorder = Recorder(options.get("model") or self.model)
        with recorder.recording() as trace:
            raw = self.raw(inputs, **options)
        return trace, self.output(raw, inputs)

    @property
    def per_token(self) -> bool:
        """Whether there is an output for each token."""
        shape = self.base_output.shape
        return len(shape) >= 3 and shape[1] == self.length

    @property
    def is_language_model(self) -> bool:
        return (
            self.takes_tokens and self.per_token and self.base_output.shape[-1] == self.vocabulary
        )

    # --- values for most checks ---------------------------------------------------------------

    @cached_property
    def base(self) -> Inputs:
        return self.inputs()

    @cached_property
    def _traced(self) -> tuple[Trace, Tensor]:
        return self.trace(self.base)

    @property
    def base_trace(self) -> Trace:
        return self._traced[0]

    @property
    def base_output(self) -> Tensor:
        return self._traced[1]

    @cached_property
    def attention(self) -> list[Attention]:
        """Every attention of the forward pass."""
        return find_attention(self.base_trace)

    @cached_property
    def scale(self) -> float:
        """The size of the output, to compare differences with."""
        found = float(self.base_output.double().nan_to_num().std())
        return found if found > 0 else 1.0

    @cached_property
    def tolerance(self) -> float:
        """Relative differences below this are rounding."""
        return 1e-7 if self.base_output.dtype is torch.float64 else 2e-5

    @cached_property
    def _rounds(self) -> bool:
        """Whether the model computes a part in single precision or less."""
        low = (torch.float32, torch.float16, torch.bfloat16)
        return any(
            op.name in ("to", "softmax") and op.out.dtype in low for op in self.base_trace.ops
        )

    def differs(self, one: Tensor, other: Tensor) -> float:
        """How much two outputs differ, relative to their size; 0 if by rounding only."""
        if one.shape != other.shape or one.numel() == 0:
            return 0.0
        nan = one.isnan() != other.isnan()
        if bool(nan.any()):
            return float("inf")
        gap = float((one.double() - other.double()).nan_to_num().abs().max()) / self.scale
        return gap if gap > self.tolerance else 0.0

    # --- calling convention ----------------------------------------------------------------

    def _find_form(self) -> tuple[Form, int]:
        problems: list[str] = []
        has_table = any(isinstance(part, nn.Embedding) for part in self.model.modules())
        embedded = has_table or bool(self.config.get("vocab_size"))
        for dtype in (torch.float64, torch.float32):
            self._set_dtype(dtype)
            for form in candidates(self.model):
                for tokens in (embedded, not embedded):
                    found = self._try_form(form, tokens, problems)
                    if found is not None:
                        return found
        self._record_failure()
        reason = problems[0] if problems else "nothing worked"
        names = ", ".join(each.name for each in self.parameters)
        raise UncallableError(
            f"{self.name}.forward({names}) could not be called with tokens or vectors: {reason}. "
            f"Wrap it in a module whose forward takes tokens (B, T) or vectors (B, T, E)",
            self.failure,
        )

    def _set_dtype(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.plain.to(dtype)
        self.model.to(dtype)

    def _try_form(self, form: Form, tokens: bool, problems: list[str]) -> tuple[Form, int] | None:
        first = isinstance_of_torch(self.model) and _time_first(self.model)
        form = replace(form, time_first=first)
        for size in [None] if tokens else widths(self.model):
            for length in lengths(self.model, BATCH)[: 8 if tokens else 5]:
                self.vocabulary, self.width = (
                    (self._guess_vocabulary(), size) if tokens else (None, size)
                )
                if form.source is not None and not form.source_is_tokens and self.width is None:
                    self.width = widths(self.model)[0]
                self.form, self.length = form, length
                self.__dict__.pop("ordinary_ids", None)
                try:
                    inputs = self.inputs()
                    trace, output = self.trace(inputs)
                except Exception as problem:
                    problems.append(_one_line(problem))
                    continue
                if output.dim() == 0 or output.shape[0] not in (BATCH, length) or output.dim() < 2:
                    problems.append(_unknown_output(output))
                    continue
                if form.source is not None and output.dim() >= 3 and output.shape[1] != length:
                    problems.append(_unknown_output(output))
                    continue  # the outputs belong to the other stream
                if tokens:
                    self._read_vocabulary(trace, inputs)
                form = self._all_positions(form, inputs, output)
                return self._settled(form), length
        return None

    def _all_positions(self, form: Form, inputs: Inputs, output: Tensor) -> Form:
        """The form that gives every position's output, of models that give the last one alone.

        Some return all logits only if targets are passed, for the loss.
        """
        labels = [each.name for each in self.parameter("labels") if not each.required]
        if output.dim() != 3 or output.shape[1] != 1 or inputs.length == 1 or not labels:
            return form
        whole = replace(form, same=(*form.same, labels[0]))
        try:
            found = self.run(inputs, form=whole)
        except Exception:
            return form
        if found.dim() != 3 or found.shape[1] != inputs.length:
            return form
        self.notes.append(f"{labels[0]} are passed, since it gives the last output alone without")
        return whole

    def _settled(self, form: Form) -> Form:
        """The same form, time first if the model itself treats its first axis as time."""
        self.__dict__.pop("ordinary_ids", None)
        if form.time_first or not self.takes_tokens or form.source is not None:
            return form
        if self._mixes_only_batch():
            self.notes.append("time is the first axis, as its positions are")
            return replace(form, time_first=True)
        return form

    def _mixes_only_batch(self) -> bool:
        """Whether positions and attention both run along the first axis."""
        same = self.inputs(batch=BATCH)
        same = same.with_stream(torch.full_like(same.stream, int(self.ordinary_ids[0])))
        output = self.run(same)
        if output.dim() < 3 or output.shape[:2] != same.stream.shape:
            return False
        along_batch = float((output[0] - output[1]).abs().max())
        along_time = float((output[:, 0] - output[:, 1]).abs().max())
        return along_batch > 1e-6 and along_time < 1e-9

    def _guess_vocabulary(self) -> int:
        known = self.config.get("vocab_size")
        if isinstance(known, int):
            return known
        sizes = [
            part.num_embeddings for part in self.model.modules() if isinstance(part, nn.Embedding)
        ]
        return min((each for each in sizes if each > 3), default=4)

    def _read_vocabulary(self, trace: Trace, inputs: Inputs) -> None:
        """The size of the table that our own ids were looked up in."""
        for op in trace.named("embedding"):
            ids, table = op.argument(0, "input"), op.argument(1, "weight")
            if ids.shape == inputs.stream.shape and ids.equal(inputs.stream):
                self.vocabulary = int(table.shape[0])
                return
        for op in trace.named("getitem", "index_select"):  # a table that is a plain parameter
            table, ids = op.tensors[0], op.tensors[-1]
            if table.dim() == 2 and table.is_floating_point() and ids.equal(inputs.stream):
                self.vocabulary = int(table.shape[0])
                return

    def _record_failure(self) -> None:
        """Record the operations before a failure, for checks that explain it."""
        has_table = any(isinstance(part, nn.Embedding) for part in self.model.modules())
        self._set_dtype(torch.float64)
        self.form, self.length = next(candidates(self.model)), lengths(self.model, BATCH)[0]
        self.vocabulary = self._guess_vocabulary() if has_table else None
        self.width = None if has_table else widths(self.model)[0]
        recorder = Recorder(self.model)
        try:
            with recorder.recording():
                self.raw(self.inputs())
        except Exception:
            self.failure = recorder.trace

    def _supply_causal_mask(self) -> None:
        """Pass a causal mask where the caller is expected to."""
        from clearformer.verification.dependence import supply_causal_mask

        supply_causal_mask(self)
        if self.supplied_mask is not None and self.claim.causal:
            name, make = self.supplied_mask
            self.form = replace(self.form, supplied={**self.form.supplied, name: make})
            self.notes.append(f"a causal mask is passed as {name}")
            self.forget()

    def forget(self) -> None:
        """Drop what was computed, since the form has changed."""
        for name in ("base", "_traced", "attention", "scale", "tolerance", "_rounds"):
            self.__dict__.pop(name, None)


@contextmanager
def training_mode(model: nn.Module, train: bool) -> Iterator[None]:
    before = {id(part): part.training for part in model.modules()}
    model.train(train)
    try:
        yield
    finally:
        for part in model.modules():
            part.training = before[id(part)]


def isinstance_of_torch(model: nn.Module) -> bool:
    return type(model).__module__.startswith("torch.nn")


def _time_first(model: nn.Module) -> bool:
    """Whether a module of torch itself was built with batch_first=False."""
    flags = [part.batch_first for part in model.modules() if hasattr(part, "batch_first")]
    return bool(flags) and not flags[-1]


def _one_line(problem: BaseException) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text[:300]}"


def _unknown_output(raw: Any) -> str:
    shape = f" of shape {tuple(raw.shape)}" if isinstance(raw, Tensor) else ""
    return (
        f"it returned {type(raw).__name__}{shape}, but a tensor (B, T, *), a tuple that begins "
        f"with one, or an output with .logits or .last_hidden_state is wanted"
    )
