"""Model: a trained model with its config and tokenizer, and `load`, which opens one."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import torch
from torch import Tensor, nn

from clearformer import limits
from clearformer.arguments import (
    BleuTokenize,
    Text,
    Weights,
    as_batch,
    as_path,
    as_questions,
    as_sentences,
    as_text,
    as_text_pairs,
    check_keywords,
    require_choice,
    require_int,
    require_known,
    require_number,
)
from clearformer.builder import outline
from clearformer.config import AnyModelConfig, GenerationDefaults, RunConfig, Verb
from clearformer.generate.language_model import LanguageModel, require_ids
from clearformer.generate.options import Generation, GenerationOptions
from clearformer.generate.stream import StopCondition, never
from clearformer.inference.huge_pages import use_huge_pages
from clearformer.inference.modes import has_hooks
from clearformer.inference.packed_linear import pack, replace_linears, use_fast_products
from clearformer.inference.shared_copy import shared_copy
from clearformer.inference.weights import QUANTIZERS, WEIGHTS
from clearformer.runs.load import has_int8, is_peft, is_run, open_any, require_floats
from clearformer.table_options import LabelledFormat
from clearformer.text import Tokenizer
from clearformer.training.device import device_of

if TYPE_CHECKING:
    from clearformer.explore.attention_head import AttentionHead
    from clearformer.explore.trace import Trace
    from clearformer.generate.beam_generate import BeamCompletion
    from clearformer.generate.detokenize import Token
    from clearformer.generate.fill import Candidate
    from clearformer.generate.sequence import GeneratedSequence
    from clearformer.generate.stream import Completion
    from clearformer.generate.translate import Translation, Translator
    from clearformer.hub.exporting import Exported
    from clearformer.hub.gguf_export import GGUFWeights
    from clearformer.interventions import Edit
    from clearformer.runs.checkpoint import Checkpoint
    from clearformer.runs.evaluate_model import Evaluation, Evaluator
    from clearformer.runs.metrics import Metrics
    from clearformer.tasks.answer_spans import Answer
    from clearformer.tasks.classification import Classification
    from clearformer.tasks.features import Embeddings, Pooling
    from clearformer.tasks.target import TextResult
    from clearformer.tasks.task import EvaluationOptions
    from clearformer.tasks.token_labels import Labelling

Texts = Text | Sequence[Text] | Tensor
Strings = list[str] | tuple[str, ...]
TextPair = tuple[str, str]
# One text or its ids; several of them; a list of these for each prompt.
Generated = str | list[int] | list[str] | list[list[int]] | list[list[str] | list[list[int]]]
DTYPES = ("float32", "float64", "bfloat16", "float16")


@check_keywords
def load(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    weights: Weights = "float32",
    tokenizer: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    allow_bin: bool = False,
) -> Model:
    """Load a trained model from a folder or a file.

    Nothing is downloaded, and no code in a checkpoint is run.

    Args:
        path (path): A run (what ``out`` named in training), one of its checkpoints, a Hugging
            Face folder (GPT-2, BERT, Llama, Mistral, Qwen2, Qwen3, Marian), a ``.safetensors``
            file that `Model.export` wrote, a ``.gguf`` file, or with `base` an adapter of PEFT.
        device (str or torch.device): ``"cpu"``, ``"cuda"``, ``"mps"``, or ``"auto"`` for the
            fastest available. Default: ``"cpu"``.
        dtype (str or torch.dtype, optional): Data type of the weights, such as ``"bfloat16"``.
            Default: ``"float32"``, as they are saved.
        weights (str): ``"int8"`` or ``"int4"`` quantizes the weights: smaller and faster on a
            CPU, less accurate, and not trainable. Default: ``"float32"``.
        tokenizer (path, optional): Another folder to take the tokenizer of a Hugging Face model
            from, or ``"bytes"``. Default: its own.
        base (path, optional): The run that an adapter was trained for. Default: where it was then.
        allow_bin (bool): Also read pickled ``.bin`` and ``.pt`` files; only the tensors in them.
            Default: False.

    Returns:
        Model: The model, in evaluation mode.

    Raises:
        ValueError: If there is no such model, or it is damaged or not supported.

    Example:
        >>> import clearformer as cf
        >>> model = cf.load("runs/mine")  # doctest: +SKIP
        >>> model.generate("Once upon", max_tokens=100)  # doctest: +SKIP
    """
    place, target, kind = as_path("path", path), _device(device), _dtype(dtype)
    require_choice("weights", weights, WEIGHTS)
    if weights != "float32" and kind not in (None, torch.float32):
        raise ValueError(f"`weights` is {weights}, but `dtype` is {dtype}: leave one of them out")
    if weights == "int4" and target.type != "cpu":
        raise ValueError(
            f"`weights` is int4, which needs a CPU, but `device` is {target.type}: choose int8, or "
            "`dtype` bfloat16"
        )
    if tokenizer is not None and is_run(place):
        raise ValueError(f"{path} is a run, which has its own tokenizer: leave `tokenizer` out")
    under = None if base is None else as_path("base", base)
    if is_run(place):
        model = _load_run(place, under)
    elif is_peft(place):
        model = _load_peft(place, under)
    elif under is not None:
        raise ValueError(f"{path} is not an adapter: leave `base` out")
    else:
        model = _load_checkpoint(place, tokenizer, allow_bin)
    if weights != "float32":
        model.quantize(weights)
    return model.to(target, kind)


@check_keywords
def merge(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
) -> Model:
    """Write the model that an adapter and its base make together as a run of its own.

    Args:
        path (path): A run that was trained with ``adapter=``, or one of its checkpoints.
        out (path): A folder that does not exist yet, or is empty.
        base (path, optional): Where the base is, if it was moved. Default: where it was then.

    Returns:
        Model: The merged model.

    Example:
        >>> import clearformer as cf
        >>> cf.merge("runs/talk", "runs/merged")  # doctest: +SKIP
    """
    model = load(path, base=base)
    if model.run_config.train.adapter is None:
        raise ValueError(f"{path} has no adapter, so there is nothing to merge: use it as it is")
    return load(model.save(out))


def _load_run(path: Path, base: Path | None = None) -> Model:
    notes: list[str] = []
    opened = open_any(path, say=notes.append, base=base)
    if base is not None and opened.config.train.adapter is None:
        raise ValueError(f"{path} is not an adapter: leave `base` out")
    return Model(
        opened.model,
        opened.config.model,
        opened.tokenizer,
        run_config=opened.config,
        path=path,
        checkpoint=opened.checkpoint,
        notes=tuple(notes),
    )


def _load_peft(path: Path, base: Path | None) -> Model:
    from clearformer.hub.peft_import import import_peft

    if base is None:
        raise ValueError(
            f"{path} is an adapter of PEFT, without the model that it was trained for: give the "
            f"run of that model as `base`"
        )
    found = import_peft(path, base)
    return Model(
        found.model(), found.config.model, found.tokenizer, run_config=found.config, path=path,
        notes=found.notes,
    )  # fmt: skip


def _load_checkpoint(path: Path, tokenizer: object, allow_bin: bool) -> Model:
    from clearformer.hub.importing import import_checkpoint

    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"there is no folder or file {path}: give a run (what --out named in clearformer "
            f"train), a Hugging Face folder, or an exported .safetensors or .gguf file"
        ) from None
    except (OSError, ValueError) as problem:  # a name that no file can have
        raise ValueError(f"{str(path)[:100]!r} cannot be opened: {problem.args[-1]}") from None
    if path.is_dir() and not (path / "config.json").exists():
        raise ValueError(
            f"{path} is not a run and not a Hugging Face folder: it has neither checkpoints nor a "
            f"config.json. Give what --out named in clearformer train"
        )
    named = None if tokenizer is None else str(as_path("tokenizer", tokenizer))
    imported = import_checkpoint(path, tokenizer=named, allow_bin=allow_bin)
    from clearformer.hub.write_run import default_run_config

    return Model(
        imported.model(),
        imported.config,
        imported.tokenizer,
        run_config=default_run_config(imported.config, imported.generation, imported.tokenizer),
        path=path,
        notes=imported.notes,
    )


class Model:
    """A module with its config and tokenizer, and a method for each thing that it can do.

    `load` and `train` return one. To use a module of your own, pass it with the config that it
    was built from. Methods take one text or a list, and return one result or a list; a text is a
    string, or the token ids that ``model.tokenizer.encode(text)`` gives. A method that the model
    was not trained for raises ValueError and names those that it has.

    Args:
        module (nn.Module): As `clearformer.build` returns it.
        config (ModelConfig): The config of the module.
        tokenizer (Tokenizer, optional): Needed for everything but `generate` from token ids.
        run_config (RunConfig, optional): Settings of data and training, and the generation
            defaults: start and end tokens. Default: the recipe of the model's family.
        path (path, optional): Where it was loaded from.
        checkpoint (Checkpoint, optional): The checkpoint of a run that it was loaded from.
        notes (tuple of str): What the user should know about how it was loaded.

    Attributes:
        module (nn.Module): Plain PyTorch, for training loops, hooks and ``torch.compile``.
        config (ModelConfig): What the model is.
        tokenizer (Tokenizer or None): Text to token ids and back.
        run_config (RunConfig): What it was trained on, and how.

    Example:
        >>> import clearformer as cf
        >>> config = cf.families.modern("tiny")
        >>> model = cf.Model(cf.build(config), config)
        >>> len(model.generate([72, 105], max_tokens=5))  # token ids in, token ids out
        5
    """

    def __init__(
        self,
        module: nn.Module,
        config: AnyModelConfig,
        tokenizer: Tokenizer | None = None,
        *,
        run_config: RunConfig | None = None,
        path: Path | None = None,
        checkpoint: Checkpoint | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.module = module
        self.config = config
        self.tokenizer = tokenizer
        self.path = path
        self.checkpoint = checkpoint
        self.notes = notes
        self._run_config = run_config
        self._in_huge_pages = False
        self._optimized = False  # by `optimize`, in place
        self._without_floats = ""  # how the module lost its float weights, if it did
        self._backend: str | None = None  # of a compiled decoding step

    @property
    def run_config(self) -> RunConfig:
        if self._run_config is None:
            from clearformer.hub.write_run import default_run_config

            self._run_config = default_run_config(self.config, GenerationDefaults(), self.tokenizer)
        return self._run_config

    @property
    def name(self) -> str:
        """The path that it was loaded from, or the name of its config."""
        return self.config.name if self.path is None else str(self.path)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def parameter_count(self) -> int:
        """The number of its parameters, shared ones counted once."""
        quantized = self.checkpoint is not None and has_int8(self.checkpoint)
        module = outline(self.config) if self._without_floats or quantized else self.module
        return sum(parameter.numel() for parameter in module.parameters())

    def __repr__(self) -> str:
        config, count = self.config, f"{self.parameter_count:,} parameters"
        layers = f"{config.layers} layer{'' if config.layers == 1 else 's'}"
        shape = f"{layers}, width {config.width}, {config.heads} heads"
        return f"<Model {self.name}: {config.noun}, {count}, {shape}; {', '.join(config.verbs)}>"

    def to(self, device: str | torch.device, dtype: str | torch.dtype | None = None) -> Model:
        """Move the module to a device, and cast it if a dtype is given; return the model itself."""
        self.module.to(device=_device(device), dtype=_dtype(dtype))
        self._in_huge_pages = False
        return self

    # --- generate --------------------------------------------------------------------------

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
            drafting = draft if isinstance(draft, Model) else load(as_path("draft", draft))
            checked = replace(checked, draft=drafting.language_model())
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

    # --- other verbs -----------------------------------------------------------------------

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

    # --- evaluate and inspect --------------------------------------------------------------

    @check_keywords
    def evaluate(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        part: str = "validation",
        context: int | None = None,
        stride: int | None = None,
        memory: int | None = None,
        max_bytes: int = 1_000_000,
        text: str | None = None,
        label: str | None = None,
        second: str | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        unknown_label: Literal["refuse", "skip"] = "refuse",
        precision: float | None = None,
        recall: float | None = None,
        weights: Weights = "float32",
        against: str | os.PathLike[str] | None = None,
        beam: int = 4,
        length_penalty: float = 1.0,
        bleu_tokenize: BleuTokenize = "13a",
        data_dir: str | os.PathLike[str] | None = None,
        table: LabelledFormat = LabelledFormat(),
    ) -> Evaluation:
        """Measure the model on data that it was not trained on.

        Args:
            data (path or str, optional): A file, or a corpus by name. Default: what the run held
                back.
            part (str): Which part of a corpus, such as ``"test"``; without `data`, ``"train"`` is
                what the run was trained on. Default: ``"validation"``.
            context (int, optional): Tokens that a prediction may use. Default: the model's length.
            stride (int, optional): Tokens between two windows; smaller is slower and better.
                Default: half the context.
            memory (int, optional): States that a Transformer-XL remembers. Default: as in
                training.
            max_bytes (int): Bytes of a text to score, or tokens for a masked model. Default:
                1,000,000.
            text, label, second (str, optional): Columns of a table; `second` has the second texts
                of sentence pairs. Default: as in training.
            source_column, target_column (str, optional): Columns of a table of pairs. Default: as
                in training.
            unknown_label (str): ``"skip"`` leaves out rows with labels that the training did not
                have. Default: ``"refuse"``.
            precision (float, optional): Of a classifier: also find the probability from which
                each class has this precision.
            recall (float, optional): Likewise for this recall.
            weights (str): ``"int8"`` or ``"int4"`` measures the model with such weights, beside
                float32. Default: ``"float32"``.
            against (path, optional): The run in float32 to measure beside one in int8. Default:
                the one that it was made from.
            beam (int): Hypotheses of a translator's beam search. Default: 4.
            length_penalty (float): Of that beam search. Default: 1.
            bleu_tokenize (str): How the BLEU of its translations splits texts into words, as in
                sacrebleu: ``"13a"``, ``"intl"``, ``"char"`` or ``"none"``. Default: ``"13a"``.
            data_dir (path, optional): Where corpora are. Default: ``CLEARFORMER_DATA``, then the
                cache, then a download.
            table (LabelledFormat): Encoding and delimiter of a table, and what happens to rows
                without a label or a text. Default: what the file says; such rows are skipped.

        Returns:
            Evaluation: ``metrics`` by name, ``notes``, and the whole report when printed.

        Example:
            >>> model.evaluate("more.txt").metrics["bits_per_byte"]  # doctest: +SKIP
        """
        from clearformer.tasks.task import EvaluationOptions

        given = dict(locals())
        options = {
            name: given[name] for name in EvaluationOptions.__dataclass_fields__ if name in given
        }
        options["data"] = None if data is None else str(as_path("data", data))
        require_choice("weights", weights, WEIGHTS)
        notes: list[str] = []
        evaluator = self.evaluator(EvaluationOptions(**options), data_dir)
        found = evaluator.measure(
            evaluator.prepare(notes.append),
            notes.append,
            weights=weights,
            against=None if against is None else as_path("against", against),
        )
        return type(found)(found.report, found.in_float32, notes=tuple(notes))

    def evaluator(
        self, options: EvaluationOptions, data_dir: str | os.PathLike[str] | None = None
    ) -> Evaluator:
        """The evaluation of this model in two steps: read the data, then measure."""
        from clearformer.data import DataFolders
        from clearformer.runs.evaluate_model import Evaluator

        return Evaluator(
            self.module,
            self.run_config,
            self._tokenizer(),
            options,
            DataFolders.from_environment(
                None if data_dir is None else as_path("data_dir", data_dir)
            ),
            self.name,
            self.checkpoint,
        )

    def trace(self, text: Text | Tensor | tuple[Text, Text], **options: object) -> Trace:
        """Run a text through the model and record every stage of the computation.

        Args:
            text (str, ids, or pair of these): One text; for a translator, source and target.
            **options: As in `clearformer.trace`.

        Returns:
            Trace: ``trace.weights(layer=2, head=1)`` are the attention weights of a head; in a
            notebook it shows itself.
        """
        from clearformer.explore.trace import trace

        pair = isinstance(text, tuple) and len(text) == 2 and "translate" in self.config.verbs
        given: Any = tuple(as_text(each) for each in text) if pair else as_text(text)
        return trace(self, given, **cast(Any, options))

    def edit(self, **changes: object) -> Edit:
        """Change what the model computes, inside a ``with`` statement.

        Args:
            **changes: As in `clearformer.interventions.edit`: ``zero``, ``scale``, ``replace``,
                ``mean``, ``steer``, ``freeze``, ``weights``, ``renormalize``. Points of the
                computation have the names that `trace` uses.

        Returns:
            Edit: A context manager; afterwards the model is as it was.

        Example:
            >>> from clearformer.interventions import head, residual
            >>> with model.edit(zero=head(2, 3)):  # doctest: +SKIP
            ...     model.generate("Once upon")
            >>> with model.edit(replace={residual(3).at(-1): other}):  # doctest: +SKIP
            ...     model.trace("The cat sat").logits
        """
        from clearformer.interventions import edit

        return edit(self, **cast(Any, changes))

    @check_keywords
    def attend(
        self,
        text: Text,
        *,
        layer: int = 0,
        head: int = 0,
        part: str | None = None,
        target: Text | None = None,
        mask: Literal["model", "none", "causal"] = "model",
    ) -> AttentionHead:
        """Show how one head of one layer attends to a text.

        Args:
            text (str or ids): What the model reads.
            layer (int): Which layer, from 0. Default: 0.
            head (int): Which head of the layer, from 0. Default: 0.
            part (str, optional): Of a translator ``"encoder"``, ``"decoder"`` or ``"cross"``.
                Default: the first part that the model has.
            target (str or ids, optional): What the decoder of a translator reads. Default: its
                own translation of the text.
            mask (str): ``"none"`` or ``"causal"`` replaces the model's attention pattern.
                Default: ``"model"``.

        Returns:
            AttentionHead: Its ``queries`` and ``keys`` are tokens, ``weights`` the attention
            weights, ``stages`` every step before them, and ``picture()`` a figure.

        Example:
            >>> model.attend("mary gave roses to susan", layer=2, head=1).weights  # doctest: +SKIP
        """
        from clearformer.explore.attention_head import attend

        return attend(
            self, as_text(text), layer=layer, head=head, part=part, target=target, mask=mask
        )

    def metrics(self) -> Metrics:
        """The metrics of the run: one row for each step, evaluation and checkpoint.

        Returns:
            Metrics: A list of dicts; ``metrics().frame()`` is a pandas frame.
        """
        from clearformer.runs.metrics import Metrics, read

        folder = None if self.path is None or self.checkpoint is None else self.path
        file = None if folder is None else folder / "metrics.jsonl"
        if file is None or not file.exists():
            raise ValueError(f"{self.name} has no metrics.jsonl: load the folder of a trained run")
        return Metrics(read(file))

    # --- write -----------------------------------------------------------------------------

    @check_keywords
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save weights, config and tokenizer as a run at step 0, which `load` and every command
        open.

        Args:
            path (path): A folder that does not exist yet, or is empty.

        Returns:
            Path: The folder.
        """
        from clearformer.hub.importing import Imported
        from clearformer.hub.write_run import write_run
        from clearformer.runs.state import weights

        self._require_floats()
        tensors = {
            name: tensor.detach().float().cpu().contiguous()
            for name, tensor in weights(self.module).items()
        }
        config = self.run_config
        config = replace(config, origin=None, train=replace(config.train, adapter=None))
        imported = Imported(
            self.name, self.config, config.generation, self.tokenizer, tensors, self.notes
        )
        return write_run(imported, as_path("path", path), config)

    @check_keywords
    def export(
        self,
        out: str | os.PathLike[str],
        *,
        to: Literal["huggingface", "safetensors", "gguf", "int8", "peft"] = "huggingface",
        weights: GGUFWeights | None = None,
    ) -> Exported:
        """Write the model for other tools; the result is opened again and compared.

        Args:
            out (path): The folder to write, or a ``.safetensors`` or ``.gguf`` file.
            to (str): ``"huggingface"``, a folder that ``transformers`` opens; ``"safetensors"``,
                one file with config and tokenizer; ``"gguf"``, one file for llama.cpp;
                ``"int8"``, a run with int8 weights; ``"peft"``, the adapter of a run that was
                trained with one. Default: ``"huggingface"``.
            weights (str, optional): Of a ``.gguf`` file: ``"f32"``, ``"f16"``, ``"q8_0"`` (8 bits)
                or ``"q4_0"`` (4 bits). Default: ``"f32"``.

        Returns:
            Exported: Its ``path``, ``form``, and the largest ``difference`` of logits.
        """
        from clearformer.hub.exporting import to_huggingface, to_safetensors
        from clearformer.hub.peft_export import to_peft
        from clearformer.hub.quantized import to_int8

        writers = {"huggingface": to_huggingface, "safetensors": to_safetensors}
        from_run = {"int8": to_int8, "peft": to_peft}
        require_choice("to", to, (*writers, *from_run, "gguf"))
        target = as_path("out", out)
        if weights is not None and to != "gguf":
            raise ValueError(f"`weights` is for GGUF files, but `to` is {to!r}: leave it out")
        if to in from_run:
            if self.checkpoint is None or self.path is None:
                raise ValueError(f"{self.name} is not a run: save it first, then export it")
            return from_run[to](self.path, target)
        self._require_floats()
        # What is written is float32, and compared with a model in float32.
        in_float32 = {p.dtype for p in self.module.parameters()} == {torch.float32}
        module = self._module if in_float32 else copy.deepcopy(self._module).float()
        known = self.config, self.run_config.generation, self._tokenizer(), target
        if to == "gguf":
            from clearformer.hub.gguf_export import WEIGHTS as GGUF_WEIGHTS
            from clearformer.hub.gguf_export import to_gguf

            chosen = "f32" if weights is None else weights
            require_choice("weights", chosen, GGUF_WEIGHTS)
            self.config.require_verb("generate", self.name)
            return to_gguf(module, *known, chosen)
        return writers[cast(Any, to)](module, *known)

    # --- speed -----------------------------------------------------------------------------

    def quantize(self, weights: Literal["int8", "int4"] = "int8") -> Model:
        """Quantize the weights in place: smaller and faster on a CPU, not trainable.

        Args:
            weights (str): ``"int8"``, with an error that is rarely seen; or ``"int4"``, about half
                as large, for matrices between the embedding and the head. Default: ``"int8"``.

        Returns:
            Model: The model itself.
        """
        require_choice("weights", weights, tuple(QUANTIZERS))
        if "translate" in self.config.verbs:
            raise ValueError(f"{self.name} is a translator, which {weights} does not support yet")
        stored = self.checkpoint is not None and has_int8(self.checkpoint)
        if stored and weights != "int8":
            raise ValueError(
                f"{self.name} has weights in int8: make {weights} of the run that it was made from"
            )
        if not stored:
            QUANTIZERS[weights](self.module)
        self._without_floats = "was quantized"
        return self

    def compile(self, backend: str = "inductor") -> Model:
        """Compile the decoding step of `generate` when it is first used, with `torch.compile`.

        Args:
            backend (str): Of `torch.compile`. Default: ``"inductor"``.

        Returns:
            Model: The model itself.
        """
        self._backend = backend
        return self

    def optimize(self, batch_size: int = 1) -> Model:
        """Arrange the weights for fast generation on a CPU, in place.

        Args:
            batch_size (int): Texts that will be generated side by side. For more than one, matrices
                are packed: the module can then not be trained or saved. Default: 1.

        Returns:
            Model: The model itself.
        """
        require_int("batch_size", batch_size, 1, limits.MAX_BATCH)
        if batch_size == 1:
            use_fast_products(self.module)
        else:
            pack(self.module, batch_size)
            self._without_floats = "was packed by optimize"
        self._optimized = True
        return self

    # --- checks ----------------------------------------------------------------------------

    @property
    def _module(self) -> Any:
        """The module as a class of core."""
        return self.module

    def _texts(self, texts: Any, verb: Verb) -> tuple[list[Text], bool]:
        self.config.require_verb(verb, self.name)
        batch, single = as_batch(texts)
        for text in batch:
            if not isinstance(text, str):
                require_ids("a text has", text, self.config)
        return batch, single

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ValueError(
                f"{self.name} has no tokenizer: load it with tokenizer=, a folder that has one"
            )
        return self.tokenizer

    def _require_floats(self) -> None:
        if self._without_floats:
            raise ValueError(
                f"{self.name} {self._without_floats}, so its weights cannot be written: load it "
                f"again without that"
            )
        if self.checkpoint is not None:
            require_floats(self.checkpoint)


def _device(device: str | torch.device) -> torch.device:
    if not isinstance(device, str | torch.device):
        raise ValueError(f"`device` is {device!r:.60}, but it must be a name such as cpu or cuda")
    found = device_of(str(device))
    if found.type == "meta":
        raise ValueError("`device` is meta, which holds no numbers: choose auto or cpu")
    return found


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype
    require_choice("dtype", name, DTYPES)
    found: torch.dtype = getattr(torch, name)
    return found
