"""Predicting from texts: classes, numbers, labels, answers, masked tokens, vectors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast, overload

import torch
from torch import Tensor

from clearformer import limits
from clearformer.arguments import (
    Text,
    as_questions,
    as_sentences,
    as_text_pairs,
    check_keywords,
    require_choice,
    require_int,
)
from clearformer.model.base import ModelBase, Strings, Texts

if TYPE_CHECKING:
    from clearformer.generate.fill import Candidate
    from clearformer.tasks.answer_spans import Answer
    from clearformer.tasks.classification import Classification
    from clearformer.tasks.features import Embeddings, Pooling
    from clearformer.tasks.target import TextResult
    from clearformer.tasks.token_labels import Labelling

TextPair = tuple[str, str]


class PredictingMixin(ModelBase):
    """Methods of `Model` that read whole texts."""

    @overload
    def classify(self, texts: str) -> Classification: ...
    @overload
    def classify(self, texts: Strings) -> list[Classification]: ...
    @overload
    def classify(
        self, texts: Texts | TextPair | list[TextPair]
    ) -> Classification | list[Classification]: ...
    @check_keywords
    def classify(
        self, texts: Texts | TextPair | list[TextPair]
    ) -> Classification | list[Classification]:
        """Classify texts, or pairs of texts.

        Args:
            texts (str, ids, or list of either): What to classify. Texts longer than the context
                are truncated; their ``cut`` is True. In a list, a tuple of two strings is a pair,
                such as a premise and a hypothesis.

        Returns:
            Classification: Its ``label`` and ``probabilities`` by label; a list for a list. That of
            a multi-label classifier is a `LabelSet`, which also has ``labels``.

        Example:
            >>> model.classify("a lovely film").label  # doctest: +SKIP
            'positive'
        """
        self.config.require_verb("classify", self.name)
        found: Any = self.predict(texts)
        return cast("Classification | list[Classification]", found)

    @overload
    def predict(self, texts: str) -> TextResult: ...
    @overload
    def predict(self, texts: Strings) -> list[TextResult]: ...
    @overload
    def predict(
        self, texts: Texts | TextPair | list[TextPair]
    ) -> TextResult | list[TextResult]: ...
    @check_keywords
    def predict(self, texts: Texts | TextPair | list[TextPair]) -> TextResult | list[TextResult]:
        """Predict what the model was trained for: a class, several labels, or a number.

        Args:
            texts (str, ids, or list of either): As in `classify`.

        Returns:
            PredictedNumber: With its ``value``, for a regression model; for a classifier what
            `classify` returns. A list for a list.

        Example:
            >>> model.predict("two rooms, near the sea").value  # doctest: +SKIP
            84.5
        """
        from clearformer.tasks.labelled_texts import describe_texts
        from clearformer.tasks.registry import target_of

        target = target_of(self.config, self.name)
        two_texts = self.config.head.two_texts
        if (pairs := as_text_pairs(texts, single=two_texts)) is not None or two_texts:
            from clearformer.tasks.sentence_pairs import classify_pairs

            if pairs is None:
                raise ValueError(
                    f"{self.name} is {self.config.noun}: give each text as a pair, as in "
                    f"('It rains.', 'The street is wet.')"
                )
            both: list[Any] = list(
                classify_pairs(self._module, self.run_config, self._tokenizer(), pairs, self.name)
            )
            return both[0] if isinstance(texts, tuple) else both
        batch, single = self._texts(texts, self.config.verbs[0])
        found: list[TextResult] = describe_texts(
            self._module, self.run_config, self._tokenizer(), batch, target, self.name
        )
        return found[0] if single else found

    @check_keywords
    def label(
        self, texts: str | Sequence[str] | Sequence[Sequence[str]]
    ) -> Labelling | list[Labelling]:
        """Label each word of texts, with names or parts of speech for example.

        Args:
            texts (str, or list of str or of words): What to label. A string is split into words and
                punctuation marks; a list of words within the list is taken as it is.

        Returns:
            Labelling: Its ``words``, ``labels`` and ``probabilities``, and ``entities``, the spans
            that B- and I- labels mark; a list for a list.

        Example:
            >>> model.label("Mary lives in Paris").entities  # doctest: +SKIP
            [('Mary', 'PER'), ('Paris', 'LOC')]
        """
        from clearformer.tasks.token_labels import label

        self.config.require_verb("label", self.name)
        batch = as_sentences(texts)
        found = label(self._module, self.run_config, self._tokenizer(), batch, self.name)
        return found[0] if isinstance(texts, str) else found

    @overload
    def answer(self, questions: str, contexts: str) -> Answer: ...
    @overload
    def answer(self, questions: Strings, contexts: str | Strings) -> list[Answer]: ...
    @check_keywords
    def answer(self, questions: str | Strings, contexts: str | Strings) -> Answer | list[Answer]:
        """Answer questions by a part of a text.

        Args:
            questions (str or list of str): What to ask.
            contexts (str or list of str): The text that holds the answer, or one for each question.

        Returns:
            Answer: Its ``text``, the characters ``start`` to ``end`` of the context, and a
            ``probability``; a list for a list. The text is empty if the model, trained with
            questions that have no answer, finds none.

        Example:
            >>> model.answer("Where does Mary live?", "Mary lives in Paris.").text  # doctest: +SKIP
            'Paris'
        """
        from clearformer.tasks.answer_spans import answer

        self.config.require_verb("answer", self.name)
        asked = as_questions(questions, contexts)
        found = answer(self._module, self.run_config, self._tokenizer(), asked, self.name)
        return found[0] if isinstance(questions, str) else found

    @overload
    def fill(self, texts: str, *, top_k: int = 5) -> list[list[Candidate]]: ...
    @overload
    def fill(self, texts: Strings, *, top_k: int = 5) -> list[list[list[Candidate]]]: ...
    @overload
    def fill(
        self, texts: Texts, *, top_k: int = 5
    ) -> list[list[Candidate]] | list[list[list[Candidate]]]: ...
    @check_keywords
    def fill(
        self, texts: Texts, *, top_k: int = 5
    ) -> list[list[Candidate]] | list[list[list[Candidate]]]:
        """Predict masked tokens.

        Args:
            texts (str, ids, or list of either): Texts with ``[MASK]`` for each token to predict.
            top_k (int): Number of candidates for each. Default: 5.

        Returns:
            list of list of Candidate: For each ``[MASK]`` its candidates, the most likely first,
            each with ``piece``, ``id`` and ``probability``; a list of these for a list.

        Example:
            >>> model.fill("the [MASK] sat")[0][0].piece  # doctest: +SKIP
            'cat'
        """
        from clearformer.generate.fill import fill

        batch, single = self._texts(texts, "fill")
        found: list[list[list[Candidate]]] = [
            fill(self._module, self.config, self._tokenizer(), text, top_k) for text in batch
        ]
        return found[0] if single else found

    @check_keywords
    def embed(
        self,
        texts: Texts,
        *,
        pool: Pooling = "mean",
        normalize: bool = True,
        batch_size: int = 32,
    ) -> Tensor:
        """Compute a vector for each text: its last hidden states, pooled.

        Args:
            texts (str, ids, or list of either): What to embed. Texts longer than the context are
                truncated, with a warning.
            pool (str): ``"mean"`` or ``"max"`` of the tokens, or the ``"first"`` token. Default:
                ``"mean"``.
            normalize (bool): Give vectors of length one. Default: True.
            batch_size (int): Texts at a time. Default: 32.

        Returns:
            Tensor: Of shape (E,) for one text, (texts, E) for a list; on the CPU.
        """
        batch, single = self._texts(texts, "embed")
        found = self.embeddings(batch, pool=pool, normalize=normalize, batch_size=batch_size)
        if found.cut:
            warnings.warn(
                f"{found.cut:,} of {len(batch):,} texts were cut to {self.config.length:,} tokens",
                stacklevel=3,
            )
        return found.vectors[0] if single else found.vectors

    @check_keywords
    def embeddings(
        self,
        texts: Sequence[Text],
        *,
        pool: Pooling = "mean",
        normalize: bool = True,
        batch_size: int = 32,
    ) -> Embeddings:
        """The vectors of `embed` for a list of texts, and how many of the texts were cut."""
        from clearformer.tasks.features import POOLS, Embeddings, embed

        require_choice("pool", pool, POOLS)
        require_int("batch_size", batch_size, 1, limits.MAX_BATCH)
        batch, _ = self._texts(texts, "embed")
        if not batch:
            return Embeddings(torch.zeros(0, self.config.width), 0)
        return embed(
            self._module,
            self._tokenizer(),
            batch,
            length=self.config.length,
            pool=pool,
            normalize=normalize,
            batch=batch_size,
        )
