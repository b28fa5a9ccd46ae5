"""Import paths of version 0.1: each still imports the modules that replaced it, with a warning.

Remove this module in 0.3. docs/migration.md lists what else changed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PACKAGE = "clearformer"

# Old module: the new ones, each of which may have what the old one had.
MOVED = {
    "build": "builder",
    "train": "training",
    "core.blockwise": "kernels.tile_attention kernels.blockwise",
    "core.flex": "kernels.flex",
    "core.int8": "inference.int8",
    "core.layout": "inference.packed_linear",
    "core.pages": "inference.huge_pages",
    "core.past": "core.cache",
    "core.reach": "explore.reach",
    "core.rules": "core.patterns",
    "core.structures": "core.patterns",
    "core.tiles": "kernels.tiles",
    "core.vocabulary": "kernels.vocabulary_loss",
    "data.aligned": "data.parallel_files",
    "data.numbers": "data.number_words",
    "data.published": "data.corpus_files",
    "data.stretches": "data.masked_rows",
    "explore.about": "explore.model_info",
    "explore.align": "explore.alignment",
    "explore.answers": "explore.responses",
    "explore.asgi": "explore.in_process_client",
    "explore.asking": "explore.inputs",
    "explore.concurrency_limit": "http_server.concurrency_limit",
    "explore.embed": "tasks.features",
    "explore.errors": "http_server.errors",
    "explore.entries": "explore.model_entry",
    "explore.hiding": "explore.masking",
    "explore.jobs": "explore.worker",
    "explore.kept": "explore.trace_cache",
    "explore.places": "explore.position_similarity",
    "explore.schemas": "explore.requests",
    "explore.security": "http_server.gate explore.token_cookie",
    "explore.source": "explore.source_code",
    "explore.subject": "explore.traced_model",
    "explore.texts": "explore.safe_text",
    "explore.words": "explore.token_display",
    "explore.writing": "explore.generation",
    "generate.best": "generate.beam_generate",
    "generate.choose": "generate.sampling",
    "generate.constrain": "generate.constraints",
    "generate.expression": "generate.regex_automaton",
    "generate.flat": "inference.fast_decode",
    "generate.grow": "inference.beam_state",
    "generate.row": "generate.sequence",
    "generate.rules": "generate.logits_processors",
    "generate.spell": "generate.detokenize",
    "generate.tree": "inference.beam_cache",
    "generate.writer": "generate.language_model",
    "hub.comparing": "hub.compare",
    "hub.ends": "hub.eos_tokens",
    "hub.fitting": "hub.export_family",
    "hub.kinds": "hub.registry",
    "hub.names": "hub.tensor_names",
    "hub.pickled": "hub.pickle_files",
    "hub.settings": "hub.hf_config",
    "hub.tensors": "hub.safetensors_files",
    "hub.vocabulary": "hub.tokenizer_files",
    "hub.wishes": "hub.generation_defaults",
    "hub.writing": "hub.write_run",
    "names": "did_you_mean",
    "reading": "safe_json",
    "text.fallback": "text.byte_fallback",
    "text.kinds": "text.registry",
    "text.library": "text.hf_tokenizers",
    "text.parts": "text.specs",
    "text.pieces": "text.subwords",
    "text.sentences": "text.sentencepiece",
    "train.average": "training.ema",
    "train.card": "runs.card",
    "train.checkpoint": "runs.checkpoint",
    "train.choice": "runs.checkpoint_choice",
    "train.cluster": "plan.cluster",
    "train.compiling": "training.torch_compile",
    "train.continuing": "runs.resume",
    "train.device": "training.device",
    "train.diagnose": "training.diagnose",
    "train.draws": "training.rng",
    "train.ending": "runs.exit_codes",
    "train.evaluate": "tasks.evaluate",
    "train.events": "training.events",
    "train.faults": "runs.faults",
    "train.fingerprint": "runs.fingerprint",
    "train.folder": "runs.load",
    "train.footprint": "plan.footprint",
    "train.last": "runs.checkpoint_average",
    "train.lock": "runs.lock",
    "train.masking": "tasks.masked_token tasks.pretraining tasks.documents",
    "train.memory": "tasks.xl_memory",
    "train.micro": "training.microbatch",
    "train.optim": "training.optim",
    "train.origin": "runs.finetune",
    "train.overlap": "tasks.bleu",
    "train.pace": "plan.throughput",
    "train.pairs": "tasks.translation",
    "train.plan": "plan.planner",
    "train.precision": "training.precision",
    "train.pulse": "distributed.heartbeat",
    "train.recompute": "training.recompute",
    "train.records": "runs.metrics",
    "train.run": "runs.run",
    "train.scaling": "training.loss_scaling",
    "train.schedule": "training.schedule",
    "train.seen": "runs.contamination",
    "train.shards": "distributed.shards",
    "train.spread": "distributed.parallel",
    "train.state": "runs.state",
    "train.step": "training.step",
    "train.structure": "tasks.pattern_checks",
    "train.tasks": "tasks.task tasks.registry tasks.next_token tasks.segments "
    "tasks.classification tasks.sources",
    "train.tidy": "training.malloc",
    "train.together": "distributed.process_group",
}
# Names that are functions now: an import of the old module must not hide them.
FUNCTIONS = {"build": "builder", "train": "run_training"}


class MovedModule(ModuleType):
    """An old module: looks names up in the new ones, and can be called where it is a function."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        old = self.__name__.removeprefix(f"{PACKAGE}.")
        modules = MOVED[old].split()
        for each in modules:
            found = importlib.import_module(f"{PACKAGE}.{each}")
            if hasattr(found, name):
                return getattr(found, name)
        places = " or ".join(f"{PACKAGE}.{each}" for each in modules)
        raise AttributeError(
            f"{self.__name__} is now {places}, which has no {name!r}: see docs/migration.md"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.__name__.removeprefix(f"{PACKAGE}.")
        if name not in FUNCTIONS:
            raise TypeError(f"{self.__name__} is a module, and cannot be called")
        module = importlib.import_module(f"{PACKAGE}.{FUNCTIONS[name]}")
        return getattr(module, name)(*args, **kwargs)


class MovedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds old modules; asked only after everything that exists."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, old = name.partition(".")
        if package != PACKAGE or old not in MOVED:
            return None
        new = " or ".join(f"{PACKAGE}.{each}" for each in MOVED[old].split())
        warnings.warn(f"{name} is now {new}", DeprecationWarning, stacklevel=2)
        return importlib.machinery.ModuleSpec(name, self, is_package=old == "train")

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return MovedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: `MovedModule` looks up what it is asked for."""


def install() -> None:
    """Let old import paths work."""
    if not any(isinstance(each, MovedFinder) for each in sys.meta_path):
        sys.meta_path.append(MovedFinder())
