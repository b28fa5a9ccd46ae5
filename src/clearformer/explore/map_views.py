"""JSON views of a map of embeddings: its points on fixed axes, and the neighbours of one.

A vocabulary has too many tokens for a picture. A map therefore shows the tokens of a text and
their nearest neighbours; the axes and the neighbours are those of the whole vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clearformer.explore import arrays
from clearformer.explore.embedding_map import Axes, EmbeddingMap, added_positions, embedding_map
from clearformer.explore.inputs import input_ids, require_text_length
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import MAX_MAP_POINTS, Limits
from clearformer.explore.model_info import position_kind
from clearformer.explore.norms import embedding_of
from clearformer.explore.requests import MapRequest, NeighboursRequest
from clearformer.http_server.errors import Problem, bad_field, require_index, wrong_kind


@dataclass(frozen=True)
class Reference:
    """What is the same for all checkpoints: the axes, and which points are shown."""

    checkpoint: str
    axes: Axes
    given: list[int]  # tokens of the text
    shown: list[int]


def reference(loaded: LoadedModel, request: MapRequest, limits: Limits) -> Reference | None:
    """The axes of the reference checkpoint; None if the model has no such vectors."""
    if not _has_vectors(loaded, request):
        return None
    given: list[int] = []
    if request.kind == "tokens":
        given = list(dict.fromkeys(input_ids(loaded, request.text, None, limits)))
    found = _map(loaded, request, limits, None)
    given = [each for each in given if each < len(found.labels)]
    everything = len(found.labels) <= MAX_MAP_POINTS
    shown = list(range(len(found.labels))) if everything else _shown(found, given)
    return Reference(loaded.checkpoint, found.axes, given, shown)


def points(
    loaded: LoadedModel, request: MapRequest, reference: Reference | None, limits: Limits
) -> dict[str, Any]:
    """The shown points of one checkpoint."""
    kinds = {"kind": request.kind, "positions": position_kind(loaded.config)}
    if reference is None:
        return {**kinds, "axes": None, "map": None}
    found, given = _map(loaded, request, limits, reference.axes), set(reference.given)
    return {
        **kinds,
        "axes": reference.checkpoint,
        "map": {
            "points": arrays.floats(found.points[reference.shown]),
            "shares": found.shares,
            "labels": [
                {"index": index, "display": found.labels[index], "given": index in given}
                for index in reference.shown
            ],
            "total": len(found.labels),
            "cut": found.cut,
        },
    }


def neighbours(
    loaded: LoadedModel, request: NeighboursRequest, reference: Reference | None, limits: Limits
) -> dict[str, Any]:
    """The nearest neighbours of one point among all, also those that are not shown."""
    if reference is None:
        raise wrong_kind(f"{loaded.entry.name} has no vectors of its {request.kind}")
    found = _map(loaded, request, limits, reference.axes)
    require_index("index", request.index, len(found.labels))
    return {
        "index": request.index,
        "display": found.labels[request.index],
        "point": found.points[request.index].tolist(),
        "norm": float(found.vectors[request.index].norm()),
        "neighbours": [
            {"index": each.index, "display": each.label, "cosine": each.cosine}
            for each in found.neighbours(request.index, request.count)
        ],
    }


def _has_vectors(loaded: LoadedModel, request: MapRequest) -> bool:
    if request.kind != "positions":
        return True
    embedding = embedding_of(loaded.model.module, _part(loaded, request))
    return added_positions(loaded.config, embedding, 1) is not None


def _part(loaded: LoadedModel, request: MapRequest) -> str:
    stacks = loaded.model.module.stacks
    first: str = next(iter(stacks))
    part = request.part or first
    if part not in stacks:
        raise bad_field("part", f"there is no stack {part!r}: there is {', '.join(stacks)}")
    return part


def _map(
    loaded: LoadedModel, request: MapRequest, limits: Limits, axes: Axes | None
) -> EmbeddingMap:
    """The map on these axes or its own; its vectors and its own axes are cached."""
    part = _part(loaded, request)
    for text in request.texts:
        require_text_length(text, limits)
    texts = request.texts if request.kind == "sentences" else []
    key = f"map {request.kind} {part} {texts!r}"
    found = loaded.view_cache.get(key)
    if found is None:
        try:
            found = embedding_map(loaded.model, request.kind, texts, part=part)
        except ValueError as problem:
            raise Problem(409, "no_map", str(problem)) from None
        if request.kind == "sentences":  # only the last ones are kept
            for old in [each for each in loaded.view_cache if each.startswith("map sentences")]:
                del loaded.view_cache[old]
        loaded.view_cache[key] = found
    if axes is None:
        return found
    return EmbeddingMap(found.kind, found.labels, found.vectors, axes, found.cut)


def _shown(found: EmbeddingMap, given: list[int]) -> list[int]:
    if found.kind != "tokens":
        count = len(found.labels)
        return list(range(0, count, -(-count // MAX_MAP_POINTS)))  # every n-th position
    return found.around(given, MAX_MAP_POINTS)
