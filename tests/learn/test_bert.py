"""Chapter 11: wrong answers as people write them, and the solutions beside the library."""

import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from clearformer.core.heads import cross_entropy
from clearformer.learn import bert as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge
from clearformer.text import train


def all_masked(tokens, chosen, chance, other, mask):
    return tokens.masked_fill(chosen, mask)


def none_kept(tokens, chosen, chance, other, mask):
    shown = tokens.masked_fill(chosen & (chance < 0.8), mask)
    late = chosen & (chance >= 0.8)
    shown[late] = other[late]
    return shown


def all_places(tokens, chosen, chance, other, mask):
    shown = tokens.masked_fill(chance < 0.8, mask)
    middle = (chance >= 0.8) & (chance < 0.9)
    shown[middle] = other[middle]
    return shown


def replaced_everywhere(tokens, chosen, chance, other, mask):
    shown = tokens.masked_fill(chosen & (chance < 0.8), mask)
    middle = (chance >= 0.8) & (chance < 0.9)
    shown[middle] = other[middle]
    return shown


def over_all_places(logits, targets):
    losses = F.cross_entropy(logits.mT, targets, reduction="none")
    return losses.mean()


def summed(logits, targets):
    return F.cross_entropy(logits.mT, targets, reduction="none").sum()


def nothing_is_token_zero(logits, targets):
    return F.cross_entropy(logits.mT, targets.masked_fill(targets == -100, 0))


def softmax_twice(logits, targets):
    return F.cross_entropy(logits.softmax(dim=-1).mT, targets)


def split_from(word, vocabulary, ends, unknown):
    found, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        fitting = [e for e in ends(start) if prefix + word[start:e] in vocabulary]
        if not fitting:
            extra = unknown(found)
            if extra is not None:
                return extra
            start += 1
            continue
        found.append(vocabulary[prefix + word[start : fitting[0]]])
        start = fitting[0]
    return found


def shortest_first(word, vocabulary):
    return split_from(word, vocabulary, lambda s: range(s + 1, len(word) + 1), lambda found: [0])


def without_marks(word, vocabulary):
    found, start = [], 0
    while start < len(word):
        end = len(word)
        while end > start and word[start:end] not in vocabulary:
            end -= 1
        if end == start:
            return [0]
        found.append(vocabulary[word[start:end]])
        start = end
    return found


def letter_unknown(word, vocabulary):
    def unknown(found):
        found.append(0)

    return split_from(word, vocabulary, lambda s: range(len(word), s, -1), unknown)


def letter_dropped(word, vocabulary):
    return split_from(word, vocabulary, lambda s: range(len(word), s, -1), lambda found: None)


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("11.1", all_masked, "every chosen token is masked"),
        ("11.1", none_kept, "no chosen token is kept"),
        ("11.1", all_places, "`chosen` is not used"),
        ("11.1", replaced_everywhere, "the second condition needs `chosen`"),
        ("11.2", over_all_places, "divided by all places"),
        ("11.2", summed, "this is the sum"),
        ("11.2", nothing_is_token_zero, "count as token 0"),
        ("11.2", softmax_twice, "softmax twice"),
        ("11.3", shortest_first, "the shortest piece is taken"),
        ("11.3", without_marks, "## is missing"),
        ("11.3", letter_unknown, "only the letter that does not fit is unknown"),
        ("11.3", letter_dropped, "letters that do not fit are left out"),
    ],
)
def test_a_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_the_loss_is_core():
    logits, targets = torch.randn(2, 4, 5), torch.tensor([[1, -100, 2, -100], [-100, 0, 4, 3]])
    total, count = cross_entropy(logits, targets)
    torch.testing.assert_close(solutions.masked_loss(logits, targets), (total / count)[0])


def test_pieces_are_the_tokenizers():
    tokenizer = train("wordpiece", ["walk walks walking talk talked talking jump jumping"] * 9, 64)
    vocabulary = {
        piece: place for place, piece in enumerate(tokenizer.pieces(range(tokenizer.size)))
    }
    for word in ("walking", "jumped", "talks", "walkwalk", "jaw"):
        assert solutions.pieces(word, vocabulary) == tokenizer.encode(word).tolist()


def test_erratum_18_walking_is_one_token_of_the_published_vocabulary():
    folder = os.environ.get("CLEARFORMER_DATA")
    file = Path(folder or "nowhere") / "bert" / "vocab.txt"
    if not file.is_file():
        pytest.skip("needs BERT's vocab.txt in $CLEARFORMER_DATA/bert")
    vocabulary = {piece: place for place, piece in enumerate(file.read_text().splitlines())}
    assert solutions.pieces("walking", vocabulary) == [3788]
    assert solutions.pieces("strolling", vocabulary) == [27244, 2075]
