"""Translating: one sequence into another, by an encoder-decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from clearformer import limits
from clearformer.arguments import Text, check_keywords, require_int, require_number
from clearformer.model.base import ModelBase, Texts

if TYPE_CHECKING:
    from clearformer.generate.translate import Translation, Translator


class TranslatingMixin(ModelBase):
    """Methods of `Model` for encoder-decoders."""

    @check_keywords
    def translate(
        self,
        texts: Texts,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        best: int = 1,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        max_tokens: int | None = None,
        batch_size: int = 32,
    ) -> str | list[str] | list[str | list[str]]:
        """Translate texts with an encoder-decoder.

        Args:
            texts (str, ids, or list of either): What to translate.
            beam (int, optional): Hypotheses that the beam search follows; 1 is greedy. Default: 4.
            length_penalty (float, optional): Scores are log probabilities divided by length to this
                power: above 0 favours long translations. Default: 1.
            best (int): Translations of each text. Default: 1.
            temperature (float, optional): Sample instead of searching: `best` translations of each
                text, with log probabilities as scores. Above 1 more random, below 1 less. Default:
                search.
            top_k (int, optional): Sample from the k most likely tokens only. Default: from all.
            top_p (float, optional): Sample from the smallest set of tokens with this total
                probability. Default: from all.
            seed (int): Seed of the samples. Default: 0.
            max_tokens (int, optional): Maximum number of tokens of a translation. Default: as
                many as the model can write.
            batch_size (int): Texts at a time. Default: 32.

        Returns:
            str: The translation; a list for a list; with `best` above 1 a list for each text.
            `translations` also gives tokens and scores.
        """
        batch, single = self._texts(texts, "translate")
        found = [
            [each.text for each in several]
            for several in self.translations(
                batch,
                beam=beam,
                length_penalty=length_penalty,
                best=best,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                max_tokens=max_tokens,
                batch_size=batch_size,
            )
        ]
        chosen: list[str | list[str]] = [several[0] if best == 1 else several for several in found]
        return chosen[0] if single else chosen

    @check_keywords
    def translations(
        self,
        texts: Sequence[Text],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        best: int = 1,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        max_tokens: int | None = None,
        batch_size: int = 32,
    ) -> list[list[Translation]]:
        """The `best` translations of each text, with tokens and scores; options as `translate`."""
        from clearformer.generate.beam import Beam
        from clearformer.generate.sampling import Sampling
        from clearformer.generate.translate import SampledTranslations

        require_int("batch_size", batch_size, 1, limits.MAX_BATCH)
        if max_tokens is not None:
            require_int("max_tokens", max_tokens, 1, limits.MAX_TOKENS)
        batch, _ = self._texts(texts, "translate")
        if temperature is None and top_k is None and top_p is None:
            penalty = 1.0 if length_penalty is None else length_penalty
            search = Beam(width=4 if beam is None else beam, length_penalty=penalty, best=best)
            return self.translator().translate(
                batch, search, batch_size=batch_size, max_tokens=max_tokens
            )
        for name, value in (("beam", beam), ("length_penalty", length_penalty)):
            if value is not None:
                raise ValueError(
                    f"`{name}` is that of a beam, which does not go with `temperature`, `top_k` or "
                    f"`top_p`: leave one out"
                )
        temperature = 1.0 if temperature is None else temperature
        require_number("temperature", temperature, 0)
        if top_k is not None:
            require_int("top_k", top_k, 1)
        if top_p is not None:
            require_number("top_p", top_p, 0, 1)
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
        return self.translator().sample(
            batch,
            SampledTranslations(sampling=sampling, samples=best, seed=seed),
            batch_size=batch_size,
            max_tokens=max_tokens,
        )

    def translator(self) -> Translator:
        """The model as the functions of `clearformer.generate.translate` take it."""
        from clearformer.tasks.translation import TranslationTask

        self.config.require_verb("translate", self.name)
        task = TranslationTask(cast(Any, self.config))
        generation = self.run_config.generation
        return task.translator(self.module, generation, self._tokenizer(), self.name)
