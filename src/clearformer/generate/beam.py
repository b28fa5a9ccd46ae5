"""Beam search for the most likely sequences.

At each step every sentence has `width` unfinished hypotheses. Of all their continuations the best
2 x width are considered (more if there are several end tokens, so that `width` others are among
them); those among the first `width` that end here become finished hypotheses, of which the best
`width` are kept; the best `width` others continue. A finished hypothesis is scored by the sum of
its log probabilities divided by length^length_penalty; the length includes the end token.

A sentence is done when it has `width` finished hypotheses and its best unfinished one, scored at
its present length, is no better than the worst of them; or when `max_tokens` is reached or
`should_stop()` is true, where unfinished hypotheses count as finished. It then leaves the batch.
This is the algorithm of Hugging Face's transformers with `early_stopping=False`, its default.

Axes: B sentences, K beams, R = B x K rows, V vocabulary, C candidates, N tokens so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clearformer import limits
from clearformer.arguments import require_int, require_number
from clearformer.config import GenerationDefaults

NEVER = -1e9  # a score below all others, finite so that sums stay finite
LEAVE = 0.75  # finished sentences are removed when at most this share is left: that copies
CHUNK = 64  # of a vocabulary, in `largest`


@dataclass(frozen=True, kw_only=True)
class Beam:
    """Beam search settings: `width` beams (1: greedy), of which the `best` are returned."""

    width: int = 4
    length_penalty: float = 1.0
    best: int = 1

    def __post_init__(self) -> None:
        require_int("beam", self.width, 1, limits.MAX_BEAM)
        require_int("best", self.best, 1)
        if self.best > self.width:
            raise ValueError(
                f"`best` is {self.best}, but `beam` {self.width} returns at most {self.width}: use "
                f"a wider beam"
            )
        require_number("length_penalty", self.length_penalty, -100, 100)


@dataclass(frozen=True)
class Hypothesis:
    """A sequence without its end token, and its score."""

    tokens: tuple[int, ...]
    score: float
    ended: bool  # by an end token, not by a limit


class BeamState(Protocol):
    """The hypotheses of a batch of sentences and their caches (see `inference.beam_state`)."""

    device: torch.device  # of the logits
    sentences: int

    def first(self) -> Tensor: ...

    def step(self, tokens: Tensor) -> Tensor: ...

    def widen(self, beams: int) -> None: ...

    def copy(self, sources: Tensor, targets: Tensor) -> None: ...

    def select(self, sentences: Tensor) -> None: ...


def search(
    state: BeamState,
    beam: Beam,
    *,
    eos_ids: Sequence[int],
    max_tokens: int,
    min_tokens: int = 0,
    defaults: GenerationDefaults = GenerationDefaults(),
    should_stop: Callable[[], bool] = lambda: False,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, best first.

    A token of `eos_ids` ends a hypothesis of at least `min_tokens` tokens. `should_stop` is called
    at each step; if it is true, the search ends with what it has.
    """
    width, device = beam.width, state.device
    found: list[list[Hypothesis]] = [[] for _ in range(state.sentences)]
    active = torch.arange(state.sentences)  # the sentence of each batch entry
    allow = Allowed(defaults, eos_ids, max_tokens, device, min_tokens)
    marks = torch.tensor(eos_ids, device=device, dtype=torch.long)
    share = max(2, 1 + len(eos_ids))

    logits = state.first().repeat_interleave(width, dim=0)  # (R, V)
    state.widen(width)
    # All hypotheses are the same at first: only continuations of the first count.
    scores = torch.full((len(active), width), NEVER, device=device)  # (B, K)
    scores[:, 0] = 0.0
    running = torch.empty(len(active), width, 0, dtype=torch.long, device=device)  # (B, K, N)
    finished = Finished(len(active), width, max_tokens, eos_ids, device)

    for length in range(1, max_tokens + 1):
        ahead, token, version = candidates(allow(logits, length), scores, share)  # each (B, C)
        grown = torch.cat((_pick(running, version), token[:, :, None]), dim=2)  # (B, C, N)
        last = length == max_tokens or should_stop()
        over = torch.ones_like(token, dtype=torch.bool) if last else torch.isin(token, marks)
        finished.add(grown, ahead / length**beam.length_penalty, over & (_places(over) < width))
        scores, place = (ahead + NEVER * over).topk(width)  # (B, K)
        done = finished.beats(scores[:, 0] / length**beam.length_penalty) | last
        if done.any():
            for each in done.nonzero().flatten().tolist():
                if not found[active[each]]:
                    found[active[each]] = finished.hypotheses(each, beam.best)
            if done.all():
                break
        running, version = _pick(grown, place), version.gather(1, place)  # (B, K, N), (B, K)
        sentences = torch.arange(len(active), device=device)[:, None]
        _follow(state, (sentences * width + version).flatten())
        left = (~done).nonzero().flatten()
        if len(left) <= LEAVE * len(done):
            state.select(left)
            finished.select(left)
            running, scores, active = running[left], scores[left], active[left.cpu()]
        else:
            finished.closed |= done
        logits = state.step(running[:, :, -1].flatten())
    return found


class Allowed:
    """Turns logits into log probabilities of the tokens that the model's defaults allow."""

    def __init__(
        self,
        defaults: GenerationDefaults,
        eos_ids: Sequence[int],
        max_tokens: int,
        device: torch.device,
        min_tokens: int = 0,
    ) -> None:
        self.banned = torch.tensor(defaults.resolved_banned_ids, device=device, dtype=torch.long)
        self.renormalize = defaults.renormalize
        self.forced_end = max_tokens if defaults.force_end else None
        self.min_tokens = min_tokens
        self.eos_ids = torch.tensor(eos_ids, device=device, dtype=torch.long)

    def __call__(self, logits: Tensor, length: int) -> Tensor:
        """Log probabilities (R, V) of the token at position `length`, counted from 1."""
        if length == self.forced_end:
            rows = torch.full_like(logits, float("-inf"))
            rows[:, self.eos_ids] = 0.0
            return rows
        if self.renormalize:
            logits[:, self.banned] = float("-inf")
        rows = logits.log_softmax(dim=1)  # (R, V)
        rows[:, self.banned] = float("-inf")
        if length <= self.min_tokens:
            rows[:, self.eos_ids] = float("-inf")
        return rows


def candidates(rows: Tensor, scores: Tensor, share: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """The share x width best continuations of each sentence: score, token and beam, each (B, C)."""
    sentences, width = scores.shape
    # The best of a sentence are among the best of each beam, so no (B, K*V) tensor is sorted.
    best, token = largest(rows, min(share * width, rows.shape[1]))  # (R, C)
    total = (best.view(sentences, width, -1) + scores[:, :, None]).flatten(1)  # (B, K*C)
    ahead, place = total.topk(share * width)
    return ahead, token.view(sentences, -1).gather(1, place), place // best.shape[1]


def largest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`rows.topk(count)`, more than twice as fast for a large vocabulary: (R, V) to (R, count).

    The `count` largest values lie in the `count` chunks with the largest maxima.
    """
    chunks = rows.shape[1] // CHUNK
    if chunks <= 2 * count:
        return rows.topk(count)
    whole = rows[:, : chunks * CHUNK].unflatten(1, (chunks, CHUNK))  # (R, chunks, CHUNK)
    chosen = whole.amax(dim=2).topk(count).indices  # (R, count)
    inside = whole.gather(1, chosen[:, :, None].expand(-1, -1, CHUNK)).flatten(1)
    # The rest after the last whole chunk takes part as it is.
    best, place = torch.cat((inside, rows[:, chunks * CHUNK :]), dim=1).topk(count)  # (R, count)
    chunk = chosen.gather(1, (place // CHUNK).clamp(max=count - 1))
    left_over = place - count * CHUNK + chunks * CHUNK
    return best, torch.where(place < count * CHUNK, chunk * CHUNK + place % CHUNK, left_over)


class Finished:
    """The best finished hypotheses of each sentence so far."""

    def __init__(
        self,
        sentences: int,
        width: int,
        max_tokens: int,
        eos_ids: Sequence[int],
        device: torch.device,
    ) -> None:
        self.eos_ids = frozenset(eos_ids)
        self.scores = torch.full((sentences, width), NEVER, device=device)  # (B, K)
        self.there = torch.zeros((sentences, width), dtype=torch.bool, device=device)
        self.lengths = torch.zeros((sentences, width), dtype=torch.long, device=device)
        self.tokens = torch.zeros((sentences, width, max_tokens), dtype=torch.long, device=device)
        self.closed = torch.zeros(
            sentences, dtype=torch.bool, device=device
        )  # sentences that are done

    def add(self, grown: Tensor, scores: Tensor, which: Tensor) -> None:
        """Add those of `grown` (B, C, N) that `which` (B, C) selects, if they are good enough."""
        which = which & ~self.closed[:, None]
        if not which.any():
            return
        width, (sentences, count, length) = self.scores.shape[1], grown.shape
        scores = torch.cat((self.scores, scores.masked_fill(~which, NEVER)), dim=1)
        self.scores, place = scores.topk(width)  # (B, K)
        self.there = torch.cat((self.there, which), dim=1).gather(1, place)
        lengths = torch.full((sentences, count), length, device=grown.device)
        self.lengths = torch.cat((self.lengths, lengths), dim=1).gather(1, place)
        room = grown.new_zeros(sentences, count, self.tokens.shape[2])
        room[:, :, :length] = grown
        self.tokens = _pick(torch.cat((self.tokens, room), dim=1), place)

    def beats(self, running: Tensor) -> Tensor:
        """Whether there are enough, and none is worse than the best unfinished one: (B,)."""
        return self.closed | (self.there.all(dim=1) & (running <= self.scores.amin(dim=1)))

    def hypotheses(self, sentence: int, best: int) -> list[Hypothesis]:
        found = []
        for place in range(best):
            tokens = self.tokens[sentence, place, : int(self.lengths[sentence, place])].tolist()
            ended = not self.eos_ids.isdisjoint(tokens[-1:])
            score = float(self.scores[sentence, place])
            found.append(Hypothesis(tuple(tokens[:-1] if ended else tokens), score, ended))
        return found

    def select(self, sentences: Tensor) -> None:
        for name in ("scores", "there", "lengths", "tokens", "closed"):
            setattr(self, name, getattr(self, name)[sentences])


def _pick(values: Tensor, place: Tensor) -> Tensor:
    """Entries (B, K, N) of values (B, C, N), by their place (B, K)."""
    return values.gather(1, place[:, :, None].expand(-1, -1, values.shape[2]))


def _places(values: Tensor) -> Tensor:
    return torch.arange(values.shape[1], device=values.device)


def _follow(state: BeamState, rows: Tensor) -> None:
    """Copy to each row the state of the row it continues; rows that stay cost nothing."""
    moved = (rows != _places(rows[None])).nonzero().flatten()
    if len(moved):
        state.copy(rows[moved], moved)
