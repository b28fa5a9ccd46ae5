"""Translation with an encoder-decoder: greedy, with a beam, or sampled.

Texts of similar length share a batch. Neither the batch nor its padding changes a translation.

Axes: B sentences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer import limits
from clearformer.arguments import require_int
from clearformer.config import GenerationDefaults, Seq2SeqConfig
from clearformer.core.model import Seq2Seq
from clearformer.data.pairs import pad
from clearformer.generate.beam import Allowed, Beam, Hypothesis, search
from clearformer.generate.sampling import Sampling, next_token
from clearformer.generate.sequence import Uniforms
from clearformer.inference.beam_cache import TreeBeams, supports
from clearformer.inference.beam_state import BeamState, TranslationBeams
from clearformer.inference.modes import inference_mode
from clearformer.text import Tokenizer

# From log probabilities (B, V), the sentence of each row, and the place of the token in its target
# to the next token of each row (B,).
Pick = Callable[[Tensor, Sequence[int], int], Tensor]
Decode = Callable[[Sequence[Sequence[int]]], list[list[Hypothesis]]]


@dataclass(frozen=True)
class Translation:
    """A translation, its tokens, and its score: log probability over length^length_penalty."""

    text: str
    tokens: tuple[int, ...]
    score: float


@dataclass(frozen=True, kw_only=True)
class SampledTranslations:
    """Sampling settings: `samples` translations of each text, the same ones for the same seed."""

    sampling: Sampling = Sampling()
    samples: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        require_int("best", self.samples, 1, limits.MAX_BATCH)
        require_int("seed", self.seed)


@dataclass(frozen=True)
class Translator:
    """An encoder-decoder with its config, its start and end tokens, and its tokenizer."""

    model: Seq2Seq
    config: Seq2SeqConfig
    generation: GenerationDefaults
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        self.generation.require_target_ids(self.config.name)

    def translate(
        self,
        texts: Sequence[str | Sequence[int]],
        beam: Beam,
        *,
        batch_size: int = 32,
        max_tokens: int | None = None,
    ) -> list[list[Translation]]:
        """Return the best translations of each text; an empty text has an empty one."""
        return self._in_batches(
            texts, batch_size, lambda sources: self.decode(sources, beam, max_tokens)
        )

    def sample(
        self,
        texts: Sequence[str | Sequence[int]],
        settings: SampledTranslations,
        *,
        batch_size: int = 32,
        max_tokens: int | None = None,
    ) -> list[list[Translation]]:
        """Return sampled translations of each text; a text has the same ones in any batch."""
        own = self.model, self.config, self.generation
        return self._in_batches(
            texts, batch_size, lambda sources: sample(*own, sources, settings, max_tokens)
        )

    def _in_batches(
        self, texts: Sequence[str | Sequence[int]], batch_size: int, decode: Decode
    ) -> list[list[Translation]]:
        sources = self.encode(texts)
        found: list[list[Translation]] = [[Translation("", (), 0.0)] for _ in texts]
        filled = [place for place, ids in enumerate(sources) if len(ids) > 1]
        filled.sort(key=lambda place: len(sources[place]))
        for first in range(0, len(filled), batch_size):
            places = filled[first : first + batch_size]
            hypotheses = decode([sources[place] for place in places])
            for place, several in zip(places, hypotheses, strict=True):
                found[place] = [
                    Translation(self.tokenizer.decode(each.tokens), each.tokens, each.score)
                    for each in several
                ]
        return found

    def encode(self, texts: Sequence[str | Sequence[int]]) -> list[list[int]]:
        """Return the ids of each text with an end token; ValueError for one that is too long."""
        _, end_id = self.generation.require_target_ids(self.config.name)
        strings = [text.strip() for text in texts if isinstance(text, str)]
        of_strings = iter(self.tokenizer.encode_many(strings))
        encoded = [
            next(of_strings).tolist() if isinstance(text, str) else list(text) for text in texts
        ]
        for place, (text, ids) in enumerate(zip(texts, encoded, strict=True), start=1):
            if len(ids) + 1 > self.config.length:
                which = "the text" if len(texts) == 1 else f"text {place:,}"
                shown = (
                    text.strip()[:30] if isinstance(text, str) else self.tokenizer.decode(ids[:9])
                )
                raise ValueError(
                    f"{which} ({shown!r}...) has {len(ids) + 1:,} tokens, but "
                    f"{self.config.name} reads at most {self.config.length}: cut it into sentences"
                )
        return [[*ids, end_id] for ids in encoded]

    def decode(
        self, sources: Sequence[Sequence[int]], beam: Beam, max_tokens: int | None = None
    ) -> list[list[Hypothesis]]:
        """Return the best targets of each source, as ids."""
        return decode(self.model, self.config, self.generation, sources, beam, max_tokens)

    def seems_reversed(self, text: str) -> bool:
        """Whether the tokens of a text are mostly of the target language."""
        ids = self.tokenizer.encode(text.strip()).tolist()
        reads = sum(each in self.generation.typical_source_ids for each in ids)
        writes = sum(each in self.generation.typical_target_ids for each in ids)
        return writes >= 2 and writes > 2 * reads


def decode(
    model: Seq2Seq,
    config: Seq2SeqConfig,
    generation: GenerationDefaults,
    sources: Sequence[Sequence[int]],
    beam: Beam,
    max_tokens: int | None = None,
) -> list[list[Hypothesis]]:
    """Return the best targets of each source as ids, each of at most `max_tokens`."""
    start_id, end_id = generation.require_target_ids(config.name)
    limit = min(max_tokens or generation.max_tokens or config.length, config.length)
    device = next(model.parameters()).device
    tokens, attention_mask = pad(sources)
    with inference_mode(model):
        source = torch.from_numpy(tokens).to(device)
        real = None if attention_mask.all() else torch.from_numpy(attention_mask).to(device)
        state = beam_state(model, config, start_id, source, real, beam.width)
        if beam.width == 1:
            found = greedy(state, end_id=end_id, max_tokens=limit, defaults=generation, beam=beam)
            return [[each] for each in found]
        return search(state, beam, eos_ids=(end_id,), max_tokens=limit, defaults=generation)


def beam_state(
    model: Seq2Seq,
    config: Seq2SeqConfig,
    start_id: int,
    source: Tensor,
    attention_mask: Tensor | None,
    width: int,
) -> BeamState:
    """The fastest state of a beam search that this model has."""
    if supports(model):
        return TreeBeams(model, config, start_id, source, attention_mask, width)
    return TranslationBeams(model, config, start_id, source, attention_mask)


def sample(
    model: Seq2Seq,
    config: Seq2SeqConfig,
    generation: GenerationDefaults,
    sources: Sequence[Sequence[int]],
    settings: SampledTranslations,
    max_tokens: int | None = None,
) -> list[list[Hypothesis]]:
    """Draw targets of each source, token by token.

    The random numbers depend on the seed and the sample alone, not on the rest of the batch.
    """
    start_id, end_id = generation.require_target_ids(config.name)
    limit = min(max_tokens or generation.max_tokens or config.length, config.length)
    samples = settings.samples
    tokens, attention_mask = pad([source for source in sources for _ in range(samples)])
    uniforms = [Uniforms(settings.seed, each) for each in range(samples)]

    def pick(rows: Tensor, sentences: Sequence[int], place: int) -> Tensor:
        drawn = [
            next_token(row, settings.sampling, uniforms[sentence % samples][place]).id
            for row, sentence in zip(rows.cpu(), sentences, strict=True)
        ]
        return torch.tensor(drawn, device=rows.device)

    with inference_mode(model):
        device = next(model.parameters()).device
        source = torch.from_numpy(tokens).to(device)
        real = None if attention_mask.all() else torch.from_numpy(attention_mask).to(device)
        state = TranslationBeams(model, config, start_id, source, real)
        found = token_by_token(
            state, pick, end_id=end_id, max_tokens=limit, defaults=generation, length_penalty=0.0
        )
    return [found[first : first + samples] for first in range(0, len(found), samples)]


def greedy(
    state: BeamState,
    *,
    end_id: int,
    max_tokens: int,
    defaults: GenerationDefaults = GenerationDefaults(),
    beam: Beam,
) -> list[Hypothesis]:
    """Take the most likely token until the end token, or for `max_tokens` tokens."""
    return token_by_token(
        state,
        lambda rows, sentences, place: rows.argmax(dim=1),
        end_id=end_id,
        max_tokens=max_tokens,
        defaults=defaults,
        length_penalty=beam.length_penalty,
    )


def token_by_token(
    state: BeamState,
    pick: Pick,
    *,
    end_id: int,
    max_tokens: int,
    defaults: GenerationDefaults,
    length_penalty: float,
) -> list[Hypothesis]:
    """One target for each sentence, until its end token, or for `max_tokens` tokens."""
    tokens: list[list[int]] = [[] for _ in range(state.sentences)]
    totals = [0.0] * state.sentences
    active = list(range(state.sentences))
    allow = Allowed(defaults, (end_id,), max_tokens, state.device)
    logits = state.first()  # (B, V)
    for length in range(1, max_tokens + 1):
        rows = allow(logits, length)  # (B, V)
        token = pick(rows, active, length - 1)  # (B,)
        scores = rows.gather(1, token[:, None])[:, 0].tolist()
        for sentence, score, each in zip(active, scores, token.tolist(), strict=True):
            tokens[sentence].append(each)
            totals[sentence] += score
        left = (token != end_id).nonzero().flatten()
        if not len(left) or length == max_tokens:
            break
        if len(left) < len(active):
            state.select(left)
            active = [active[place] for place in left.tolist()]
        logits = state.step(token[left])
    return [
        Hypothesis(
            tuple(found[:-1] if found[-1] == end_id else found),
            total / len(found) ** length_penalty,
            found[-1] == end_id,
        )
        for found, total in zip(tokens, totals, strict=True)
    ]
