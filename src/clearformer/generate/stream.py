"""Texts, one token after the other: many side by side, one as a stream, or each when it is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from clearformer.core.model import Transformer
from clearformer.generate.context import (
    ContextOverflow,
    check_prompt_length,
    context_limit,
    default_overflow,
    handle_overflow,
    remaining_tokens,
)
from clearformer.generate.decoder import Decoder
from clearformer.generate.detokenize import Token
from clearformer.generate.language_model import LanguageModel, require_ids
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import FinishReason, GeneratedSequence, GenerationConfig
from clearformer.generate.speculate import Draft, speculate


@dataclass(frozen=True)
class Completion:
    """A text that is done."""

    prompt: str | Sequence[int]
    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason  # why it ended


def stream(
    model: LanguageModel,
    prompt: str | Sequence[int],
    sampling: Sampling | None = None,
    *,
    config: GenerationConfig | None = None,
    max_tokens: int = 256,
    seed: int = 0,
    index: int = 0,
    context_overflow: ContextOverflow | None = None,
    draft: Draft | None = None,
) -> Iterator[Token]:
    """The tokens that follow a prompt, each as soon as it is certain.

    `how` and `most` are the usual part of a `task`; give one or the other.
    """
    config = config or GenerationConfig(
        sampling=sampling or Sampling(), max_tokens=max_tokens, eos_ids=model.eos_ids()
    )
    (sequence,) = start_sequences(model, [prompt], config, seed, index)
    rule = context_overflow or default_overflow(model.config)
    with evaluating(model.module):
        if draft is None:
            for _, token in generate_tokens(model, [sequence], rule):
                yield token
        else:
            yield from speculate(model, sequence, draft, rule)


def generate(
    model: LanguageModel,
    prompt: str | Sequence[int],
    sampling: Sampling | None = None,
    *,
    config: GenerationConfig | None = None,
    max_tokens: int = 256,
    seed: int = 0,
    context_overflow: ContextOverflow | None = None,
    draft: Draft | None = None,
) -> Completion:
    """The text that follows a prompt."""
    config = config or GenerationConfig(
        sampling=sampling or Sampling(), max_tokens=max_tokens, eos_ids=model.eos_ids()
    )
    (written,) = generate_many(
        model, [prompt], config, seed=seed, context_overflow=context_overflow, draft=draft
    )
    return written


def generate_many(
    model: LanguageModel,
    prompts: Sequence[str | Sequence[int]],
    config: GenerationConfig,
    *,
    samples: int = 1,
    seed: int = 0,
    first: int = 0,
    context_overflow: ContextOverflow | None = None,
    draft: Draft | None = None,
) -> Iterator[Completion]:
    """`samples` texts for each prompt, all side by side, in the order of the prompts.

    Text number i (from `first`) depends on the seed and i, not on its neighbours. With a draft
    they are written one after the other: it pays where a single text is read at a time.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}, but it must be at least 1")
    prompts = [prompt for prompt in prompts for _ in range(samples)]
    sequences = start_sequences(model, prompts, config, seed, first)
    if not sequences:
        return
    rule = context_overflow or default_overflow(model.config)
    with evaluating(model.module):
        if draft is not None:
            for prompt, sequence in zip(prompts, sequences, strict=True):
                yield _written(prompt, list(speculate(model, sequence, draft, rule)), sequence)
            return
        tokens: list[list[Token]] = [[] for _ in sequences]
        done = 0
        for index, token in generate_tokens(model, sequences, rule):
            tokens[index - first].append(token)
            # A row that is finished may still hand out what it held back: wait for the next one.
            while done < index - first and sequences[done].finish_reason:
                yield _written(prompts[done], tokens[done], sequences[done])
                done += 1
        for place in range(done, len(sequences)):
            yield _written(prompts[place], tokens[place], sequences[place])


def start_sequences(
    model: LanguageModel,
    prompts: Sequence[str | Sequence[int]],
    config: GenerationConfig,
    seed: int,
    first: int,
) -> list[GeneratedSequence]:
    """A row for each prompt, numbered from `first`."""
    for name, ids in {
        "banned": config.sampling.banned_ids,
        "forced": config.sampling.forced_ids,
        "ends": config.eos_ids,
    }.items():
        require_ids(f"{name} has", ids, model.config)
    return [
        GeneratedSequence(model.encode(prompt), config, model.tokenizer, seed, index)
        for index, prompt in enumerate(prompts, first)
    ]


def generate_tokens(
    model: LanguageModel,
    sequences: Sequence[GeneratedSequence],
    rule: ContextOverflow,
    chunk: int | None = None,
) -> Iterator[tuple[int, Token]]:
    """Tokens of all rows, each with its row's number, until all are finished."""
    full = context_limit(rule, model.config)
    for sequence in sequences:
        check_prompt_length(len(sequence), model.config, full)
    active = list(sequences)
    decoder = Decoder(model, chunk)
    logits = decoder.prefill(
        [sequence.context for sequence in active], remaining_tokens(active, full)
    )
    while True:
        slid = False
        for sequence, scores in zip(active, logits, strict=True):
            for token in sequence.advance(scores):
                yield sequence.index, token
            if sequence.finish_reason is None and full is not None and len(sequence) > full:
                slid = True
                for token in handle_overflow(sequence, rule, full):
                    yield sequence.index, token
        left = [place for place, sequence in enumerate(active) if sequence.finish_reason is None]
        if not left:
            return
        if len(left) < len(active):
            decoder.select(left)
            active = [active[place] for place in left]
        # The cache may also be full of padding, once the longest text is done.
        if slid or decoder.full:
            logits = decoder.prefill(
                [sequence.context for sequence in active], remaining_tokens(active, full)
            )
        else:
            logits = decoder.step([sequence.generated[-1] for sequence in active])


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """A model in evaluation mode; how it was comes back afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _written(
    prompt: str | Sequence[int], tokens: Sequence[Token], sequence: GeneratedSequence
) -> Completion:
    assert sequence.finish_reason is not None
    return Completion(
        prompt, "".join(token.text for token in tokens), tuple(tokens), sequence.finish_reason
    )
