"""A beam search as a tree: every hypothesis that was considered, with its score and its fate.

Runs `beam.search`, records the logits that it reads, and replays its steps from them.

Axes: K beams, V vocabulary, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from clearformer.config import GenerationDefaults
from clearformer.generate.beam import (
    NEVER,
    Allowed,
    Beam,
    BeamState,
    Hypothesis,
    candidates,
    search,
)

# Continued by the search; ended, and among the best; ended with a lower score than enough others;
# not among the best continuations of its step; unfinished when the search was over.
Fate = Literal["kept", "finished", "outscored", "pruned", "open"]


@dataclass(frozen=True)
class Node:
    """A hypothesis: the tokens on the way from the root."""

    id: int
    parent: int | None  # None: the root
    token: int | None
    length: int
    log_probability: float  # of the token, given those before it
    total: float  # the sum along the way
    fate: Fate
    score: float | None = None  # total / length^length_penalty, if it is finished
    rank: int | None = None  # among the returned hypotheses; 0 is the best


@dataclass(frozen=True)
class BeamTree:
    """All nodes, parents first, and the hypotheses that the search returned, best first."""

    nodes: list[Node]
    hypotheses: list[Hypothesis]

    def tokens(self, node: Node) -> tuple[int, ...]:
        """The tokens of a hypothesis, from the first one."""
        found: list[int] = []
        while node.parent is not None and node.token is not None:
            found.append(node.token)
            node = self.nodes[node.parent]
        return tuple(reversed(found))


class RecordedBeams:
    """The state of a beam search of one sentence that records its logits and tokens."""

    def __init__(self, state: BeamState) -> None:
        self.state = state
        self.device = state.device
        self.sentences = state.sentences
        self.logits: list[Tensor] = []  # (1, V), then each (K, V)
        self.tokens: list[list[int]] = []  # of each step but the first

    def first(self) -> Tensor:
        return self._kept(self.state.first())

    def step(self, tokens: Tensor) -> Tensor:
        self.tokens.append(tokens.tolist())
        return self._kept(self.state.step(tokens))

    def widen(self, beams: int) -> None:
        self.state.widen(beams)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        self.state.copy(sources, targets)

    def select(self, sentences: Tensor) -> None:
        self.state.select(sentences)

    def _kept(self, logits: Tensor) -> Tensor:
        self.logits.append(logits.clone())  # the search may change them
        return logits


def search_tree(
    state: BeamState,
    beam: Beam,
    *,
    eos_ids: Sequence[int],
    max_tokens: int,
    defaults: GenerationDefaults = GenerationDefaults(),
) -> BeamTree:
    """The tree of `beam.search` of one sentence; all of its `width` hypotheses are returned."""
    recorded = RecordedBeams(state)
    every = replace(beam, best=beam.width)
    (found,) = search(recorded, every, eos_ids=eos_ids, max_tokens=max_tokens, defaults=defaults)
    nodes = _replay(recorded, beam, eos_ids, max_tokens, defaults)
    tree = BeamTree(nodes, [])
    finished = {}  # tokens without the end token, and whether there was one: the node
    for node in nodes:
        if node.score is not None:
            tokens = tree.tokens(node)
            ended = tokens[-1] in eos_ids
            finished[tokens[:-1] if ended else tokens, ended] = node
            nodes[node.id] = replace(node, fate="outscored")
    for each in found:
        # The search may have found fewer, and fills its list with copies and empty ones.
        end = finished.pop((each.tokens, each.ended), None)
        if end is not None:
            nodes[end.id] = replace(end, fate="finished", rank=len(tree.hypotheses))
            tree.hypotheses.append(each)
    return tree


def _replay(
    recorded: RecordedBeams,
    beam: Beam,
    eos_ids: Sequence[int],
    max_tokens: int,
    defaults: GenerationDefaults,
) -> list[Node]:
    """The nodes of every step, as `search` computes them for one sentence."""
    width, share = beam.width, max(2, 1 + len(eos_ids))
    allow = Allowed(defaults, eos_ids, max_tokens, recorded.device)
    nodes = [Node(0, None, None, 0, 0.0, 0.0, "kept")]
    beams = [0] * width  # the node of each beam
    scores = torch.full((1, width), NEVER, device=recorded.device)  # (1, K)
    scores[0, 0] = 0.0
    for length, logits in enumerate(recorded.logits, start=1):
        logits = logits.clone().expand(width, -1).contiguous()  # (K, V)
        best, tokens, versions = candidates(allow(logits, length), scores, share)  # each (1, C)
        over = [length == max_tokens or each in eos_ids for each in tokens[0].tolist()]
        # As in `search`, so that equal scores are ordered in the same way.
        scores, place = (best + NEVER * torch.tensor([over], device=best.device)).topk(width)
        ahead, token, version = (each[0].tolist() for each in (best, tokens, versions))
        last = length == len(recorded.logits)
        going = place[0].tolist()
        ids: dict[int, int] = {}
        for number, total in enumerate(ahead):
            if total < NEVER / 2:
                continue  # a copy of the first beam, before there are others
            parent = nodes[beams[version[number]]]
            fate: Fate = "pruned"
            if number in going and not over[number]:
                fate = "open" if last else "kept"
            ends = over[number] and number < width
            ids[number] = len(nodes)
            nodes.append(
                Node(
                    len(nodes), parent.id, token[number], length, total - parent.total, total, fate,
                    total / length**beam.length_penalty if ends else None,
                )
            )  # fmt: skip
        if last:
            break
        chosen = [token[number] for number in going]
        assert chosen == recorded.tokens[length - 1], "the steps are not those of the search"
        beams = [ids.get(number, 0) for number in going]
    return nodes
