"""Generating text: continue prompts, stream them, answer a conversation."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from clearformer.arguments import Text, as_batch, as_path, as_text, check_keywords, require_known
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.options import Generation, GenerationOptions
from clearformer.generate.stream import StopCondition, never
from clearformer.inference.huge_pages import use_huge_pages
from clearformer.inference.modes import has_hooks
from clearformer.inference.packed_linear import replace_linears
from clearformer.inference.shared_copy import shared_copy
from clearformer.model.base import ModelBase, Texts

if TYPE_CHECKING:
    from clearformer.generate.beam_generate import BeamCompletion
    from clearformer.generate.detokenize import Token
    from clearformer.generate.sequence import GeneratedSequence
    from clearformer.generate.stream import Completion
    from clearformer.model import Model

# One text or its ids; several of them; a list of these for each prompt.
Generated = str | list[int] | list[str] | list[list[int]] | list[list[str] | list[list[int]]]


class GeneratingMixin(ModelBase):
    """Methods of `Model` that write text from left to right."""

    @check_keywords
    def generate(
        self,
        prompts: Texts,
        *,
        max_tokens: int = 500,
        min_tokens: int = 0,
        samples: int = 1,
        batch_size: int = 8,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        typical_p: float | None = None,
        repetition_penalty: float | None = None,
        frequency_penalty: float | None = None,
        banned: Sequence[str | int] = (),
        forced: str = "",
        stop: str | Sequence[str] = (),
        choices: Sequence[str] | None = None,
        pattern: str | None = None,
        json_schema: Mapping[str, object] | str | None = None,
        beam: int | None = None,
        length_penalty: float | None = None,
        context_overflow: Literal["slide", "stop", "continue"] | None = None,
        lookup: int | None = None,
        draft: Model | str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> Generated:
        """Continue prompts.

        Args:
            prompts (str, ids, or list of either): What to continue.
            max_tokens (int): Maximum number of tokens to generate. Default: 500.
            min_tokens (int): Minimum number of tokens before the model may end a text. Default: 0.
            samples (int): Texts for each prompt. Default: 1.
            batch_size (int): Texts that are generated side by side. Default: 8.
            temperature (float, optional): Above 1 more random, below 1 less, 0 always the most
                likely token. Default: 0.8.
            top_k (int, optional): Sample from the k most likely tokens only.
            top_p (float, optional): Sample from the smallest set of tokens with this total
                probability.
            min_p (float, optional): Sample from tokens with at least this share of the highest
                probability.
            typical_p (float, optional): Sample from the tokens closest to the expected surprise
                that have this total probability.
            repetition_penalty (float, optional): Above 1: divide the logits of tokens in the
                prompt or the text by this.
            frequency_penalty (float, optional): Above 0: subtract this from a token's logit for
                each time the text has it.
            banned (list of str or int): Tokens that are never generated: each a text that is one
                token, ``"#id"``, or an id.
            forced (str): The text begins with this.
            stop (str or list of str): End before any of these strings.
            choices (list of str, optional): The text is one of these.
            pattern (str, optional): The text matches this regular expression.
            json_schema (dict or str, optional): The text is JSON that follows this schema, given
                as a dict or as JSON. `max_tokens` must leave room for it.
            beam (int, optional): Beam search with this many beams, which gives the `samples` most
                likely texts.
            length_penalty (float, optional): Beam search only: scores are log probabilities
                divided by length to this power. Default: 1.
            context_overflow (str, optional): At the end of the context ``"slide"`` drops the
                oldest tokens, ``"stop"`` ends the text, ``"continue"`` goes on. Default: what
                suits the model.
            lookup (int, optional): Propose this many tokens from repetitions and verify them in
                one pass: the same text, faster.
            draft (Model or path, optional): A smaller model with the same tokenizer that proposes
                tokens: the same text, faster.
            seed (int): The same seed gives the same text. Default: 0.

        Returns:
            str: The text after the prompt; for ids a list of ids; for a list of prompts a list;
            with `samples` above 1 a list for each prompt. `completions` gives more about each.

        Raises:
            ValueError: For a model that does not generate, or invalid or conflicting options.

        Example:
            >>> model.generate("Once upon", max_tokens=50, temperature=0.7)  # doctest: +SKIP
            >>> model.generate(["2 + 2 =", "3 + 3 ="], pattern="[0-9]+")  # doctest: +SKIP
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "prompts")}
        batch, single = as_batch(prompts, "prompts")
        found: list[Any] = [
            each.text if isinstance(each.prompt, str) else list(each.ids)
            for each in self._completions(batch, given)
        ]
        if samples == 1:
            return found[0] if single else found
        several: list[Any] = [
            found[first : first + samples] for first in range(0, len(found), samples)
        ]
        return several[0] if single else several

    def completions(
        self, prompts: Texts, **options: object
    ) -> list[Completion] | list[BeamCompletion]:
        """Continue prompts, as `generate` does, and return all that is known about each text.

        Args:
            prompts (str, ids, or list of either): What to continue.
            **options: As in `generate`.

        Returns:
            list of Completion: `samples` for each prompt, each with ``text``, ``tokens`` (with
            their probabilities) and ``finish_reason``; with `beam`, list of BeamCompletion, each
            with its ``score``.
        """
        return self._completions(as_batch(prompts, "prompts")[0], options)

    def stream(self, prompt: Text, **options: object) -> Iterator[Token]:
        """Continue one prompt, and yield each token as soon as its text is certain.

        Args:
            prompt (str or ids): What to continue.
            **options: As in `generate`, except `samples`, `batch_size` and `beam`.

        Yields:
            Token: Its ``text``, ``id``, ``probability`` and ``bits``.

        Example:
            >>> for token in model.stream("Once upon"):  # doctest: +SKIP
            ...     print(token.text, end="", flush=True)
        """
        known = list(GenerationOptions.__dataclass_fields__)
        require_known("stream", options, known)
        for name in ("samples", "batch_size", "beam"):
            if name in options:
                raise ValueError(f"stream gives one text as it is sampled: leave {name} out")
        generation = self.generation(options)
        return generation.stream(generation.start(as_text(prompt, "prompt")))

    def chat(self, messages: Sequence[Mapping[str, object]], **options: object) -> str:
        """Answer a conversation, with the chat template of the model.

        Args:
            messages (list of dict): Each has a ``role`` (``"system"``, ``"user"`` or
                ``"assistant"``) and a ``content``; the last one is the user's.
            **options: As in `generate`, except `samples`, `batch_size`, `beam` and `forced`.

        Returns:
            str: The answer.

        Raises:
            ValueError: For a model without a chat template, or roles in the wrong order.

        Example:
            >>> model.chat([{"role": "user", "content": "Hello!"}])  # doctest: +SKIP
        """
        return "".join(token.text for token in self.chat_stream(messages, **options))

    def chat_stream(
        self, messages: Sequence[Mapping[str, object]], **options: object
    ) -> Iterator[Token]:
        """Answer a conversation as `chat` does, and yield each token as soon as it is certain.

        Args:
            messages (list of dict): As in `chat`.
            **options: As in `chat`.

        Yields:
            Token: Its ``text``, ``id``, ``probability`` and ``bits``.
        """
        return self.chat_sequence(messages, options)[1]

    def chat_sequence(
        self,
        messages: Sequence[Mapping[str, object]],
        options: Mapping[str, object],
        should_stop: StopCondition = never,
    ) -> tuple[GeneratedSequence, Iterator[Token]]:
        """The answer as a sequence, which grows while the iterator yields its tokens."""
        from clearformer.generate.chat import chat_prompt

        for name in ("samples", "batch_size", "beam"):
            if name in options:
                raise ValueError(f"chat gives one answer as it is sampled: leave {name} out")
        self.config.require_verb("generate", self.name)
        prompt = chat_prompt(self.language_model(), messages, self.name)
        generation = self.generation(options)
        config = replace(
            generation.config,
            eos_ids=prompt.eos_ids,
            stop=(*generation.config.stop, *prompt.stop),
        )
        generation = replace(generation, config=config)
        generation.require_whole(prompt.ids)  # without its beginning it is another conversation
        sequence = generation.start(prompt.ids)
        return sequence, generation.stream(sequence, should_stop)

    def generation(self, options: Mapping[str, object]) -> Generation:
        """The options of `generate`, prepared for this model."""
        known = list(GenerationOptions.__dataclass_fields__)
        require_known("generate", options, known)
        self.config.require_verb("generate", self.name)
        checked = GenerationOptions(**cast(Any, options))
        if (draft := options.get("draft")) is not None:
            checked = replace(checked, draft=_language_model(draft))
        return checked.prepare(self.language_model())

    def language_model(self) -> LanguageModel:
        """The model as the functions of `clearformer.generate` take it."""
        module, defaults = self._module, self.run_config.generation
        if self._backend is not None and not has_hooks(module):
            found = LanguageModel(module, self.config, defaults, self.tokenizer)
            return found.compiled(self._backend)
        if not self._optimized and not has_hooks(module) and self.device.type == "cpu":
            if not self._in_huge_pages:
                use_huge_pages(module)
                self._in_huge_pages = True
            module = replace_linears(shared_copy(module))
        return LanguageModel(module, self.config, defaults, self.tokenizer)

    def _completions(self, prompts: Sequence[Text], options: Mapping[str, Any]) -> Any:
        generation = self.generation(options)
        for note in generation.check_prompts(prompts):
            warnings.warn(note, stacklevel=4)
        return list(generation.completions(prompts))


def _language_model(draft: Any) -> LanguageModel:
    """Of a model that proposes tokens, or of the path to one."""
    from clearformer.model.loading import load

    opened = draft if isinstance(draft, GeneratingMixin) else load(as_path("draft", draft))
    return opened.language_model()
