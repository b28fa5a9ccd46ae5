"""Fine-tuning: a new run that starts with the tokenizer and the weights of another.

The body (embedding and blocks) must be the same and is loaded completely. The head is loaded if it
is of the same kind, and initialized otherwise; a classifier also loads BERT's pooler. The new run
records its origin, and no longer needs it once it has a checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from clearformer import limits, safe_files
from clearformer.builder import build
from clearformer.config import ModelConfig, Origin, RunConfig, run_from_json
from clearformer.core.embedding import Embedding
from clearformer.runs import load
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.fingerprint import BUILDER, Builder
from clearformer.text import Tokenizer
from clearformer.text import from_json as tokenizer_from_json

MAY_DIFFER = {"name", "family", "head", "dropout", "length", "cache"}  # fields of the config
POSITIONS = "embedding.position.table.weight"
# Of parameters that depend on the classes: the head, and the scores of n-grams.
CLASS_PREFIXES = "head.", "ngrams."
POOLER = "head.sentence.pool.", "head.pool."  # prefix in BERT, and in a classifier


@dataclass(frozen=True)
class FinetuneOrigin:
    """Config, tokenizer and identity of a run to fine-tune."""

    config: RunConfig
    tokenizer: Tokenizer
    origin: Origin


def read_origin(path: Path) -> FinetuneOrigin:
    """Read the run, or the single checkpoint, in `path`."""
    saved = load.best_checkpoint(path)
    config = run_from_json(saved.json("config.json"))
    tokenizer = tokenizer_from_json(saved.json("tokenizer.json"))
    return FinetuneOrigin(config, tokenizer, Origin(folder=str(path), sha256=identity(saved)))


def open_origin(origin: Origin, config: RunConfig, make: Builder = build) -> load.OpenedAny:
    """Open the model to fine-tune; ValueError if it has changed or does not fit the config.

    `make` is the new run's builder, also used for an origin with a custom builder.
    """
    path = Path(origin.folder)
    saved = load.best_checkpoint(path)
    if config.train.adapter is None:
        load.require_floats(saved, "use the run that it was made from, or train an --adapter")
    opened = load.open_any(path, make if BUILDER in saved.manifest else build, dequantize=True)
    if identity(opened.checkpoint) != origin.sha256:
        raise ValueError(
            f"{origin.folder} has changed since this run was set up: start a new run from it, or "
            f"restore the old one"
        )
    kind, size = opened.tokenizer.kind, opened.tokenizer.size
    if config.data.tokenizer != kind or config.data.vocabulary not in (None, size):
        raise ValueError(
            f"{origin.folder} comes with its tokenizer, {kind} with {size:,} tokens, but "
            f"the settings are {config.data.tokenizer} with {config.data.vocabulary}: leave them "
            f"out"
        )
    require_same_body(opened.config.model, config.model, origin.folder)
    return opened


def identity(saved: Checkpoint) -> str:
    return manifest_hash(saved.folder)


def manifest_hash(folder: Path) -> str:
    manifest = folder / "manifest.json"
    data = safe_files.read(manifest, limits.MAX_JSON_BYTES, "MAX_JSON_BYTES")
    return hashlib.sha256(data).hexdigest()


def require_same_body(source: ModelConfig, asked: ModelConfig, where: str) -> None:
    """Raise ValueError if the weights would compute something else under the new config."""
    for field in fields(source):
        expected, actual = getattr(source, field.name), getattr(asked, field.name, None)
        left_out = field.name == "ngrams" and actual is None  # another head has no use for them
        if expected != actual and field.name not in MAY_DIFFER and not left_out:
            raise ValueError(
                f"model.{field.name} is {actual}, but {where} has {expected}: with --from only the "
                f"head, dropout and a shorter length may differ"
            )
    if source.position.max_length(source.length) is not None and asked.length > source.length:
        raise ValueError(
            f"model.length is {asked.length}, but {where} has learned {source.length} positions: "
            f"choose at most that"
        )
    head = asked.head
    causal = "generate" in source.verbs or source.cache is not None
    if causal and head.pool in ("first", "pooler"):
        raise ValueError(
            f"model.head.pool is {head.pool!r}, but the first token of {where} attends to no "
            f"other (causal attention): choose mean or max"
        )


def same_weights(source: ModelConfig, asked: ModelConfig) -> bool:
    """Whether two models have the same parameters, so that one's weights are the other's."""
    kept = {name: getattr(source, name) for name in MAY_DIFFER - {"head"}}
    return replace(asked, **kept) == source


@torch.no_grad()
def load_pretrained(model: nn.Module, config: ModelConfig, opened: load.OpenedAny) -> set[str]:
    """Load the weights of another model with the same body into a newly initialized one; the names
    of parameters that it does not have."""
    loaded = pretrained_weights(model, config, opened)
    for name, parameter in model.named_parameters():
        if name in loaded:
            parameter.copy_(loaded[name])
    return {name for name, _ in model.named_parameters() if name not in loaded}


def pretrained_weights(
    model: nn.Module, config: ModelConfig, opened: load.OpenedAny
) -> dict[str, Tensor]:
    """The weights of another model with the same body, under the names that they have here."""
    source = opened.config.model
    pretrained = {name: value.detach() for name, value in opened.model.named_parameters()}
    if config.head.text_task is not None:
        pretrained = {name.replace(*POOLER): value for name, value in pretrained.items()}
    same_head = type(source.head) is type(config.head) and not _other_classes(source, config)
    found = {}
    for name, parameter in model.named_parameters():
        value = _fitting(pretrained, name, parameter)
        new = name.startswith(CLASS_PREFIXES) and not same_head
        if value is not None and (not new or name.startswith(POOLER[1])):
            found[name] = value
        elif not new:
            shape = tuple(pretrained[name].shape) if name in pretrained else "nothing"
            raise ValueError(
                f"{opened.checkpoint.folder} does not fit the model: {name} is {shape} there, but "
                f"{tuple(parameter.shape)} is needed"
            )
    return found


def _fitting(pretrained: Mapping[str, Tensor], name: str, parameter: nn.Parameter) -> Tensor | None:
    value = pretrained.get(name)
    if value is not None and name == POSITIONS:
        value = value[: len(parameter)]
    return value if value is not None and value.shape == parameter.shape else None


def _other_classes(source: ModelConfig, config: ModelConfig) -> bool:
    """Whether two classifiers have different classes."""
    return source.head.meaning != config.head.meaning


@torch.no_grad()
def rescale_embeddings(model: nn.Module, size: float) -> None:
    """Rescale all embedding tables by one factor, so that tokens have this standard deviation.

    The norm that follows makes the model's outputs independent of the factor. Adam's updates are
    about as large as the learning rate, whatever the size of the weights, so that tables that grew
    in pretraining would hardly change at a learning rate that suits initialized ones.
    """
    embedding = getattr(model, "embedding", None)
    if not isinstance(embedding, Embedding) or isinstance(embedding.norm, nn.Identity):
        raise ValueError(
            f"train.embedding_std is {size:g}, but no norm follows the embedding of this model, so "
            f"that rescaling would change its outputs: leave it out"
        )
    first = torch.zeros(1, dtype=torch.long)  # position 0
    added = embedding.scheme.added(first, embedding.width, embedding.position)
    fixed = added is not None and embedding.position is None
    head = model.get_submodule("head")
    if fixed or any(each is embedding.token.weight for each in head.parameters()):
        why = "fixed position encodings are added to" if fixed else "the head shares"
        raise ValueError(
            f"train.embedding_std is {size:g}, but {why} the token embedding, so that rescaling "
            f"would change the model's outputs: leave it out"
        )
    factor = size / embedding.token.weight.std()
    for name, part in embedding.named_children():
        if name != "norm":
            for parameter in part.parameters():
                parameter.mul_(factor)


def freeze_body(model: nn.Module) -> None:
    """Freeze all but the head; a matrix that it shares with the body is frozen too."""
    for name, part in model.named_children():
        if not f"{name}.".startswith(CLASS_PREFIXES):
            part.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "train.freeze is 'body', but the head has no weights of its own, so that nothing would "
            "be trained: leave it out"
        )
