"""How numbers are computed while coding: as torch does here, or so that any CPU agrees."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol as Interface

import torch

from clearformer.compressor import environment
from clearformer.compressor.container import Machine
from clearformer.compressor.portable import PortableMode
from clearformer.generate.language_model import LanguageModel
from clearformer.inference.modes import evaluating


class Arithmetic(Interface):
    """Where and how a model computes its probabilities."""

    @property
    def machine(self) -> Machine | None:
        """What the numbers depend on besides the model; None: on nothing."""

    def prepare(self, model: LanguageModel) -> LanguageModel:
        """The model to compute with."""

    @contextmanager
    def running(self, model: LanguageModel) -> Iterator[None]:
        """Compute in this way."""
        yield


@dataclass(frozen=True)
class Native:
    """torch's own products, on a number of threads: fast, and bound to a kind of CPU."""

    threads: int

    @property
    def machine(self) -> Machine:
        return Machine(self.threads, torch.__version__, environment.cpu())

    def prepare(self, model: LanguageModel) -> LanguageModel:
        return model

    @contextmanager
    def running(self, model: LanguageModel) -> Iterator[None]:
        with environment.fixed(self.threads), evaluating(model.module):
            yield


@dataclass(frozen=True)
class Portable:
    """Exact products in float64 (`portable`): slower, and the same on any CPU."""

    @property
    def machine(self) -> None:
        return None

    def prepare(self, model: LanguageModel) -> LanguageModel:
        """A copy in float64."""
        if any(not each.is_floating_point() for each in model.module.state_dict().values()):
            raise ValueError(
                f"{model.config.name} has weights in int8, for which there is no portable "
                f"arithmetic: use the model in float32"
            )
        return replace(model, module=copy.deepcopy(model.module).double(), step=None)

    @contextmanager
    def running(self, model: LanguageModel) -> Iterator[None]:
        threads = torch.get_num_threads()
        with environment.fixed(threads), evaluating(model.module), PortableMode(model.module):
            yield
