"""Text generation: one loop that yields tokens, for one text or many.

`generate_tokens` is the loop. `stream`, `generate` and `generate_many` are its short forms.

Axes: B batch, P proposed tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from clearformer.generate.context import (
    ContextOverflow,
    context_limit,
    default_overflow,
    fit_prompt,
    handle_overflow,
    remaining_tokens,
)
from clearformer.generate.detokenize import Token
from clearformer.generate.language_model import LanguageModel, require_ids
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import FinishReason, GeneratedSequence, GenerationConfig
from clearformer.generate.speculate import Draft, require_rollback
from clearformer.inference.decoder import Decoder
from clearformer.inference.modes import evaluating

Prompt = str | Sequence[int]
StopCondition = Callable[[], bool]  # asked before each token


def never() -> bool:
    """The stop condition of a generation that nobody interrupts."""
    return False


@dataclass(frozen=True)
class Completion:
    """A generated text, and why it ended."""

    prompt: Prompt
    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the tokens."""
        return tuple(token.id for token in self.tokens)

    def numbers(self) -> dict[str, object]:
        """The numbers of each token, as columns."""
        return {
            "ids": list(self.ids),
            "probabilities": [token.probability for token in self.tokens],
            "bits": [round(token.bits, 4) for token in self.tokens],
            "uniforms": [token.uniform for token in self.tokens],
        }


def stream(
    model: LanguageModel,
    prompt: Prompt,
    sampling: Sampling | None = None,
    *,
    config: GenerationConfig | None = None,
    max_tokens: int = 256,
    seed: int = 0,
    index: int = 0,
    context_overflow: ContextOverflow | None = None,
    draft: Draft | None = None,
    should_stop: StopCondition = never,
) -> Iterator[Token]:
    """Yield the tokens that follow a prompt, each as soon as its text is certain.

    `sampling` and `max_tokens` are short for a `config` with these fields; give one or the other.
    """
    config = config or _default_config(model, sampling, max_tokens)
    sequences = start_sequences(model, [prompt], config, seed, index)
    for _, token in generate_tokens(
        model, sequences, context_overflow, draft=draft, should_stop=should_stop
    ):
        yield token


def generate(
    model: LanguageModel,
    prompt: Prompt,
    sampling: Sampling | None = None,
    *,
    config: GenerationConfig | None = None,
    max_tokens: int = 256,
    seed: int = 0,
    context_overflow: ContextOverflow | None = None,
    draft: Draft | None = None,
) -> Completion:
    """Return the text that follows a prompt; parameters as in `stream`."""
    config = config or _default_config(model, sampling, max_tokens)
    (completion,) = generate_many(
        model, [prompt], config, seed=seed, context_overflow=context_overflow, draft=draft
    )
    return completion


def generate_many(
    model: LanguageModel,
    prompts: Sequence[Prompt],
    config: GenerationConfig,
    *,
    samples: int = 1,
    seed: int = 0,
    first: int = 0,
    context_overflow: ContextOverflow | None = None,
    draft: Draft | None = None,
    should_stop: StopCondition = never,
) -> Iterator[Completion]:
    """Yield `samples` completions of each prompt, in the order of the prompts.

    Completion i (counted from `first`) depends on the seed and i, not on the rest of the batch.
    Sequences that `should_stop` kept from being started are left out.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}, but it must be at least 1")
    prompts = [prompt for prompt in prompts for _ in range(samples)]
    sequences = start_sequences(model, prompts, config, seed, first)
    done = 0

    def completions(before: int) -> Iterator[Completion]:
        """Completions from `done` on that are finished; a gap ends them."""
        nonlocal done
        while done < before and (reason := sequences[done].finish_reason) is not None:
            sequence = sequences[done]
            yield Completion(prompts[done], sequence.text, tuple(sequence.tokens), reason)
            done += 1

    for sequence, _ in generate_tokens(
        model, sequences, context_overflow, draft=draft, should_stop=should_stop
    ):
        # A finished sequence may still release tokens it held back: wait for the next sequence.
        yield from completions(sequence.index - first)
    yield from completions(len(sequences))


def start_sequences(
    model: LanguageModel,
    prompts: Sequence[Prompt],
    config: GenerationConfig,
    seed: int = 0,
    first: int = 0,
) -> list[GeneratedSequence]:
    """Return an empty sequence for each prompt, with indices from `first`."""
    sampling = config.sampling
    require_ids("banned_ids has", sampling.banned_ids, model.config)
    require_ids("forced_ids has", sampling.forced_ids, model.config)
    require_ids("eos_ids has", config.eos_ids, model.config)
    return [
        GeneratedSequence(model.encode(prompt), config, model.tokenizer, seed, index)
        for index, prompt in enumerate(prompts, first)
    ]


def generate_tokens(
    model: LanguageModel,
    sequences: Sequence[GeneratedSequence],
    context_overflow: ContextOverflow | None = None,
    *,
    draft: Draft | None = None,
    should_stop: StopCondition = never,
    chunk: int | None = None,
) -> Iterator[tuple[GeneratedSequence, Token]]:
    """Generate all sequences; yield each token with its sequence, as soon as it is certain.

    The sequences are generated side by side, or one after the other with a draft. Once
    `should_stop()` is true, those that were started end with the reason "interrupted", and the
    others stay empty. `chunk` is the number of prompt tokens that are read at a time.
    """
    overflow = context_overflow or default_overflow(model.config)
    limit = context_limit(overflow, model.config)
    for sequence in sequences:
        fit_prompt(sequence, overflow, model.config, limit)
    if draft is not None:
        require_rollback(model)
        draft.check_compatible(model)
    batches = [list(sequences)] if draft is None else [[sequence] for sequence in sequences]
    with evaluating(model.module):
        for batch in batches:
            if not should_stop():
                decoder = model.decoder(chunk)
                yield from _generate_batch(decoder, batch, overflow, limit, draft, should_stop)


def _generate_batch(
    decoder: Decoder,
    active: list[GeneratedSequence],
    overflow: ContextOverflow,
    limit: int | None,
    draft: Draft | None,
    should_stop: StopCondition,
) -> Iterator[tuple[GeneratedSequence, Token]]:
    """Generate sequences side by side; with a draft, a single one."""
    proposed: Sequence[int] = ()
    accepted, prefill = 0, True
    while active:
        if prefill:
            contexts, room = [each.context for each in active], remaining_tokens(active, limit)
            logits, proposed = decoder.prefill(contexts, room)[:, None], ()  # (B, 1, V)
        elif draft is None:
            logits = decoder.step([each.generated[-1] for each in active])[:, None]  # (B, 1, V)
        else:
            (sequence,) = active
            decoder.rollback(len(proposed) - accepted)
            proposed = draft.propose(sequence)[: decoder.capacity - decoder.length - 1]
            logits = decoder.extend([sequence.generated[-1], *proposed])[None]  # (1, 1 + P, V)
        prefill = False
        for sequence, rows in zip(active, logits, strict=True):
            # Tokens after a proposal are valid only as long as the proposals are what is sampled.
            for accepted, row in enumerate(rows):
                tokens = sequence.finish("interrupted") if should_stop() else sequence.advance(row)
                yield from ((sequence, token) for token in tokens)
                if sequence.finish_reason is not None or accepted == len(proposed):
                    break
                if sequence.generated[-1] != proposed[accepted]:
                    break
            if sequence.finish_reason is None and limit is not None and len(sequence) > limit:
                prefill = True
                tokens = handle_overflow(sequence, overflow, limit)
                yield from ((sequence, token) for token in tokens)
        left = [place for place, each in enumerate(active) if each.finish_reason is None]
        if left and len(left) < len(active):
            decoder.select(left)
        active = [active[place] for place in left]
        prefill = prefill or decoder.full  # padding may fill it, once the longest text is done


def _default_config(
    model: LanguageModel, sampling: Sampling | None, max_tokens: int
) -> GenerationConfig:
    return GenerationConfig(
        sampling=sampling or Sampling(), max_tokens=max_tokens, eos_ids=model.eos_ids()
    )
