"""Exercises of chapter 11: masking, its loss, and word pieces."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw

NO_TARGET = -100


def corrupted(tokens: Tensor, chosen: Tensor, chance: Tensor, other: Tensor, mask: int) -> Tensor:
    shown = torch.where(chosen & (chance < 0.8), mask, tokens)
    replaced = chosen & (chance >= 0.8) & (chance < 0.9)
    return torch.where(replaced, other, shown)  # (B, T)


def masked_loss(logits: Tensor, targets: Tensor) -> Tensor:
    places = targets != -100  # (B, T)
    chances = logits.log_softmax(dim=-1)[places]  # (R, V)
    return -chances.gather(1, targets[places][:, None]).mean()


def pieces(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    found, start = [], 0
    while start < len(word):
        mark = "##" if start else ""
        for end in range(len(word), start, -1):
            if mark + word[start:end] in vocabulary:
                break
        else:
            return [vocabulary["[UNK]"]]
        found.append(vocabulary[mark + word[start:end]])
        start = end
    return found


def _rows() -> list[Case]:
    tokens = torch.arange(10, 22).view(2, 6)
    chosen = torch.tensor([[1, 1, 1, 0, 1, 0], [0, 1, 1, 1, 0, 0]], dtype=torch.bool)
    chance = torch.tensor([[0.1, 0.85, 0.95, 0.2, 0.79, 0.85], [0.95, 0.81, 0.3, 0.99, 0.5, 0.1]])
    return [(tokens, chosen, chance, torch.arange(30, 42).view(2, 6), 3)]


def _predictions() -> list[Case]:
    targets = torch.tensor([[2, -100, 0, -100], [-100, -100, -100, 1]])
    return [(draw(2, 4, 5), targets), (3 * draw(1, 4, 5, seed=1), targets[:1])]


_PIECES = [
    *("[UNK]", "w", "wa", "walk", "##ing", "##k", "##i", "##n", "##g", "##alking"),
    *("un", "##able", "##a", "##lk", "ing", "##s"),
]
_VOCABULARY = {piece: place for place, piece in enumerate(_PIECES)}


def _words() -> list[Case]:
    words = ("walking", "walk", "unable", "walkings", "walkzing", "waing")
    return [(word, _VOCABULARY) for word in words]


def _greedy(
    word: str, vocabulary: Mapping[str, int], *, shortest: bool = False, mark: str = "##"
) -> list[int]:
    found, start = [], 0
    while start < len(word):
        before = mark if start else ""
        ends = [e for e in range(start + 1, len(word) + 1) if before + word[start:e] in vocabulary]
        if not ends:
            return [vocabulary["[UNK]"]]
        end = ends[0] if shortest else ends[-1]
        found.append(vocabulary[before + word[start:end]])
        start = end
    return found


def _one_letter_unknown(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    found, start = [], 0
    while start < len(word):
        mark = "##" if start else ""
        ends = [e for e in range(start + 1, len(word) + 1) if mark + word[start:e] in vocabulary]
        end = ends[-1] if ends else start + 1
        found.append(vocabulary[mark + word[start:end]] if ends else vocabulary["[UNK]"])
        start = end
    return found


EXERCISES = (
    Exercise(
        number="11.1",
        title="Masking: 80, 10, 10",
        task="tokens, chosen (booleans), chance (from 0 to 1) and other (random tokens) are (B, "
        "T). Of the chosen tokens, those with chance below 0.8 become mask, those from 0.8 to 0.9 "
        "become other, and the rest stay. Tokens that are not chosen stay.",
        answer=corrupted,
        cases=_rows,
        hints=(
            "There are four kinds of places: masked, replaced, kept though chosen, not chosen.",
            "torch.where(condition, a, b) takes a where the condition holds.",
            "First mask where chosen & (chance < 0.8), then replace where chosen & (chance >= 0.8) "
            "& (chance < 0.9).",
        ),
        mistakes=(
            Mistake(
                lambda tokens, chosen, chance, other, mask: torch.where(chosen, mask, tokens),
                "every chosen token is masked: then the model never sees a real word that it is "
                "asked about, and never [MASK] where it is used",
            ),
            Mistake(
                lambda tokens, chosen, chance, other, mask: torch.where(
                    chosen, torch.where(chance < 0.8, mask, other), tokens
                ),
                "no chosen token is kept: one in ten stays as it is, so that a shown word may be "
                "right",
            ),
            Mistake(
                lambda tokens, chosen, chance, other, mask: torch.where(
                    chance < 0.8, mask, torch.where(chance < 0.9, other, tokens)
                ),
                "`chosen` is not used: most of the text would be gone, and nobody is asked about "
                "it",
            ),
            Mistake(
                lambda tokens, chosen, chance, other, mask: torch.where(
                    chosen & (chance < 0.8),
                    mask,
                    torch.where((chance >= 0.8) & (chance < 0.9), other, tokens),
                ),
                "tokens that are not chosen are replaced too: the second condition needs `chosen`",
            ),
        ),
    ),
    Exercise(
        number="11.2",
        title="The loss of the hidden tokens",
        task="logits is (B, T, V); targets is (B, T) and -100 where nothing is asked. Return the "
        "mean of -log p(target) over the places with a target.",
        answer=masked_loss,
        cases=_predictions,
        hints=(
            "places = targets != -100 picks rows: logits[places] is (R, V).",
            "log_softmax along the vocabulary, then the entry of each target.",
            "Divide by the number of places with a target, not by B * T.",
        ),
        mistakes=(
            Mistake(
                lambda logits, targets: (
                    F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
                    / targets.numel()
                ),
                "divided by all places: the loss would depend on how many words are hidden. Divide "
                "by the number of targets",
            ),
            Mistake(
                lambda logits, targets: F.cross_entropy(
                    logits.flatten(0, 1), targets.flatten(), reduction="sum"
                ),
                "this is the sum: divide by the number of targets",
            ),
            Mistake(
                lambda logits, targets: F.cross_entropy(
                    logits.flatten(0, 1), targets.flatten().clamp(min=0)
                ),
                "places without a target count as token 0: leave them out",
            ),
            Mistake(
                lambda logits, targets: F.cross_entropy(
                    logits.softmax(-1).flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET
                ),
                "softmax twice: F.cross_entropy takes logits, and applies log_softmax itself",
            ),
        ),
    ),
    Exercise(
        number="11.3",
        title="Word pieces",
        task="vocabulary maps pieces to ids; a piece that continues a word begins with ##. Take "
        "the longest piece that the word begins with, then the longest that goes on, and return "
        "the list of ids. A word that cannot be spelled is [UNK], as a whole.",
        answer=pieces,
        cases=_words,
        hints=(
            "From a place in the word, try the longest rest first, and shorten it from its end.",
            'From the second piece on, look for "##" + the letters.',
            'If no piece fits at some place, return [vocabulary["[UNK]"]] and nothing else.',
        ),
        mistakes=(
            Mistake(
                lambda word, vocabulary: _greedy(word, vocabulary, shortest=True),
                "the shortest piece is taken: that spells words letter by letter. Take the longest",
            ),
            Mistake(
                lambda word, vocabulary: _greedy(word, vocabulary, mark=""),
                "## is missing: a piece inside a word is another token than one at its start",
            ),
            Mistake(
                _one_letter_unknown,
                "only the letter that does not fit is unknown: in WordPiece the whole word is "
                "[UNK], one token",
            ),
            Mistake(
                lambda word, vocabulary: [
                    each for each in _one_letter_unknown(word, vocabulary) if each
                ],
                "letters that do not fit are left out: two different words would look the same. "
                "The whole word is [UNK]",
            ),
        ),
    ),
)
