"""Embedding space as a map: principal components of tokens, positions or sentences.

    from clearformer.interpretability import embedding_map

    space = embedding_map(model, "tokens")
    space.points[7], space.shares           # where token 7 lies, and how much the map shows
    space.neighbours(7, count=5)            # the tokens with the most similar vectors

The axes of one map can be given to another, so that two checkpoints are drawn on the same axes.

Axes: P points, E model width, D map dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.arguments import require_choice, require_int
from clearformer.config import AnyModelConfig
from clearformer.core.embedding import Embedding
from clearformer.explore import token_display
from clearformer.explore.norms import embedding_of
from clearformer.explore.traced_model import TracedModel, as_traced_model, encode_source
from clearformer.inference.modes import inference_mode
from clearformer.tasks.features import embed

Kind = Literal["tokens", "positions", "sentences"]
DIMENSIONS = 2
CHUNK = 4096  # rows in float64 at a time: a whole vocabulary would take much memory


@dataclass(frozen=True)
class Axes:
    """The axes of a map: a center (E,), and a unit vector for each dimension (D, E)."""

    center: Tensor
    directions: Tensor


@dataclass(frozen=True)
class Neighbour:
    """A point that is near another one by the cosine of their vectors."""

    index: int
    label: str
    cosine: float


@dataclass(frozen=True)
class EmbeddingMap:
    """Vectors with their places on two axes.

    Attributes:
        kind (str): ``"tokens"``, ``"positions"`` or ``"sentences"``.
        labels (list of str): Of the points: tokens by id, positions, or the sentences.
        vectors (Tensor): (P, E).
        axes (Axes): Their own principal axes, or those of another map.
        cut (int): Sentences that were longer than the model's context, and were truncated.
    """

    kind: Kind
    labels: list[str]
    vectors: Tensor
    axes: Axes
    cut: int = 0

    @cached_property
    def points(self) -> Tensor:
        """The coordinates on the axes: (P, D), in float64."""
        center, directions = self.axes.center, self.axes.directions
        chunks = self.vectors.split(CHUNK)
        return torch.cat([(each.double() - center) @ directions.T for each in chunks])

    @cached_property
    def shares(self) -> list[float]:
        """The share of the variance of these vectors that lies along each axis."""
        center = self.vectors.mean(0, dtype=torch.double)
        total = sum(float((x.double() - center).square().sum()) for x in self.vectors.split(CHUNK))
        along = (self.points - self.points.mean(0)).square().sum(0)  # (D,)
        return (along / max(total, 1e-300)).tolist()

    @cached_property
    def unit(self) -> Tensor:
        """The vectors at length one: (P, E)."""
        return F.normalize(self.vectors, dim=-1)

    def neighbours(self, index: int, count: int = 10) -> list[Neighbour]:
        """The points with the largest cosine to one, without itself, the nearest first."""
        require_int("index", index, 0, len(self.labels) - 1)
        require_int("count", count, 1)
        cosines = self.unit @ self.unit[index]  # (P,)
        cosines[index] = -torch.inf
        order = cosines.argsort(descending=True, stable=True)[: min(count, len(self.labels) - 1)]
        return [Neighbour(i, self.labels[i], float(cosines[i])) for i in order.tolist()]

    def around(self, indices: Sequence[int], limit: int) -> list[int]:
        """Some points and their nearest neighbours, at most `limit`: a map that can be read."""
        chosen = dict.fromkeys(indices)
        if not chosen or len(chosen) >= limit:
            return list(chosen)[:limit]
        each = min(len(self.labels), -(-limit // len(chosen)) + 1)
        near = (self.unit[list(chosen)] @ self.unit.T).topk(each).indices  # (indices, each)
        for index in near.T.flatten().tolist():  # the nearest of all, then the second, ...
            if len(chosen) == limit:
                break
            chosen.setdefault(index)
        return list(chosen)


def embedding_map(
    model: object,
    kind: Kind = "tokens",
    texts: Sequence[str] = (),
    *,
    part: str | None = None,
    axes: Axes | None = None,
) -> EmbeddingMap:
    """Map a model's tokens or positions, or sentences, by principal component analysis.

    Args:
        model (Model or nn.Module): Any model.
        kind (str): ``"tokens"``: the rows of the embedding table. ``"positions"``: the vectors
            that are added to them; a rotary model has none. ``"sentences"``: the mean of the last
            hidden states of each text, as `Model.embed` computes it (of a translator, its
            encoder's).
        texts (list of str): The sentences.
        part (str, optional): Of a translator ``"encoder"`` (the default) or ``"decoder"``: whose
            tokens and positions.
        axes (Axes, optional): Of another map, such as that of another checkpoint. Default: the
            principal axes of these vectors. Their signs are fixed, so a map is the same each time.

    Returns:
        EmbeddingMap: `points` and `shares`, with `neighbours(index)`.
    """
    require_choice("kind", kind, get_args(Kind))
    traced = as_traced_model(model)
    labels, vectors, cut = _vectors(traced, kind, texts, part)
    if not bool(vectors.isfinite().all()):
        raise ValueError(f"the vectors of the {kind} have NaN or infinities, so there is no map")
    return EmbeddingMap(kind, labels, vectors, axes or principal_axes(vectors), cut)


def principal_axes(vectors: Tensor, dimensions: int = DIMENSIONS) -> Axes:
    """The directions of the largest variance of vectors (P, E).

    The largest component of each direction is positive, since either sign would do.
    """
    center = vectors.mean(0, dtype=torch.double)  # (E,)
    if len(vectors) > vectors.shape[1]:
        covariance = center.new_zeros(len(center), len(center))
        for each in vectors.split(CHUNK):
            x = each.double() - center
            covariance += x.T @ x
        directions = torch.linalg.eigh(covariance).eigenvectors.T.flip(0)  # (E, E)
    else:
        x = vectors.double() - center
        directions = torch.linalg.svd(x, full_matrices=False).Vh  # (P, E)
    directions = directions[:dimensions]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))  # (D, 1)
    directions = directions * largest.sign()
    if len(directions) < dimensions:  # one point, or two: the other axes are zero
        missing = directions.new_zeros(dimensions - len(directions), len(center))
        directions = torch.cat((directions, missing))
    return Axes(center, directions)


def added_positions(config: AnyModelConfig, embedding: Embedding, count: int) -> Tensor | None:
    """The vectors (P, E) that are added at the first positions; None if none are."""
    device = embedding.token.weight.device
    indices = torch.arange(min(config.length, count), device=device)
    return config.position.added(indices, config.width, embedding.position)


def known_tokens(model: TracedModel, rows: int) -> int:
    """How many rows of an embedding table belong to tokens: some tables have a few more."""
    if model.tokenizer is None:
        return rows
    return min(rows, max([model.tokenizer.size, *(id + 1 for id in model.added_tokens)]))


@torch.inference_mode()
def _vectors(
    model: TracedModel, kind: Kind, texts: Sequence[str], part: str | None
) -> tuple[list[str], Tensor, int]:
    """The labels of the points, their vectors (P, E), and how many texts were truncated."""
    stacks = model.module.stacks
    part = part or next(iter(stacks))
    require_choice("part", part, tuple(stacks))
    embedding = embedding_of(model.module, part)
    if kind == "sentences":
        labels = [" ".join(map(token_display.visible, text.split(" "))) for text in texts]
        return labels, *_sentences(model, texts)
    if kind == "tokens":
        table = embedding.token.weight.detach().float().cpu()
        table = table[: known_tokens(model, len(table))]
        items = token_display.vocabulary_items(model, range(len(table)))
        return [item["display"] for item in items], table, 0
    if model.config is None:
        raise ValueError("the positions of a module without a config are unknown: open a Model")
    added = added_positions(model.config, embedding, model.config.length)
    if added is None:
        scheme = type(model.config.position).__name__
        raise ValueError(
            f"{model.name} has no position vectors: its positions ({scheme}) are not added to the "
            f"tokens, so there is nothing to map"
        )
    added = added.float().cpu()
    return [str(position) for position in range(len(added))], added, 0


def _sentences(model: TracedModel, texts: Sequence[str]) -> tuple[Tensor, int]:
    """The mean of the last hidden states of each text (P, E), and how many were truncated."""
    if isinstance(texts, str) or not texts:
        raise ValueError("there are no sentences to map: pass texts=[...]")
    if model.tokenizer is None or model.config is None:
        raise ValueError("sentences need a tokenizer and a config: open a Model")
    length = model.config.length
    if len(model.module.stacks) == 1:
        found = embed(model.transformer, model.tokenizer, texts, length=length, normalize=False)
        return found.vectors, found.cut
    rows = [encode_source(model, text) for text in texts]
    with inference_mode(model.seq2seq) as device:
        vectors = [
            model.seq2seq.encoder(
                model.seq2seq.source_embedding(torch.tensor([ids[:length]], device=device))
            ).mean(1)
            for ids in rows
        ]  # each (1, E)
    return torch.cat(vectors).float().cpu(), sum(len(ids) > length for ids in rows)
