"""Chat: a generator learns the answers of conversations.

A conversation is written as text by a chat template. The loss is that of the answers alone, with
their ends; everything else is read and not learned. Several conversations share a row and do not
see each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from clearformer import data, safe_files
from clearformer.config import DataConfig, RunConfig
from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, Transformer
from clearformer.data.packing import identity
from clearformer.generate.chat import chat_prompt
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import GenerationConfig
from clearformer.generate.stream import stream
from clearformer.inference.modes import inference_mode
from clearformer.tasks.measured import Measured, shares
from clearformer.tasks.packed_batch import PackedBatch, packed_batch
from clearformer.tasks.task import (
    EvaluationData,
    EvaluationRequest,
    LoadedTask,
    Material,
    PairLengths,
    Report,
    Task,
    rows_at_a_time,
)
from clearformer.text import Tokenizer
from clearformer.text.chat_template import MAX_TEMPLATE, ChatTemplate

SAMPLE_TOKENS = 120
MAX_VALIDATION = 512  # conversations that are measured during training


@dataclass(frozen=True)
class Encoded:
    """Conversations as examples, and how many did not fit."""

    examples: list[data.Example]
    cut: int = 0  # conversations whose end did not fit into the context
    left_out: int = 0  # conversations of which no answer fitted


def encode_conversations(
    table: data.Table, template: ChatTemplate, tokenizer: Tokenizer, length: int
) -> Encoded:
    """Write the conversations by a template, and mark what is to be learned."""
    examples, cut, left_out = [], 0, 0
    for row, text in enumerate(table.texts):
        try:
            texts = template.examples(data.parse_conversation(text))
        except ValueError as problem:
            raise ValueError(f"{table.name}, conversation {row + 1}: {problem}") from None
        for parts in texts:
            ids, learned = _encode(parts, tokenizer)
            targets = np.where(learned, ids, IGNORE)[1:]
            tokens, targets = ids[:-1][:length], targets[:length]
            cut += len(ids) - 1 > length
            if (targets != IGNORE).any():
                examples.append(data.Example(tokens, targets))
            else:
                left_out += 1
    if not examples:
        raise ValueError(
            f"{table.name}: no answer begins within the first {length} tokens of its conversation, "
            f"which is the context of the model: use shorter conversations, or a model with a "
            f"longer context"
        )
    return Encoded(examples, cut, left_out)


def _encode(
    parts: Sequence[tuple[str, bool]], tokenizer: Tokenizer
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """The ids of a conversation, and which of them belong to an answer.

    The text before an answer gets the ids that it will have as a prompt; the answer those that
    continue them.
    """
    ids: list[int] = []
    learned: list[bool] = []
    text = ""
    for part, is_answer in parts:
        text += part
        whole = tokenizer.encode_with_specials(text).tolist()
        opening = list(tokenizer.prefix_ids)
        if whole[: len(opening)] != opening:
            whole = opening + whole
        # A tokenizer may join the end of a prompt and the beginning of an answer.
        continues = whole[: len(ids)] == ids
        new = whole[len(ids) :] if continues else tokenizer.encode_with_specials(part).tolist()
        ids += new
        learned += [is_answer] * len(new)
    return np.array(ids, dtype=np.int64), np.array(learned, dtype=np.bool_)


def answer_losses(
    model: Transformer, examples: Sequence[data.Example], length: int, padding: int, rows: int
) -> tuple[list[float], int]:
    """The summed loss of each conversation's answers, and the number of their tokens."""
    sums, tokens = [], 0
    with inference_mode(model) as device:
        for packed in data.evaluation_examples(examples, rows, length, padding):
            for row in range(len(packed.tokens)):
                batch = Batch(
                    torch.from_numpy(packed.tokens[row : row + 1]).to(device),
                    torch.from_numpy(packed.targets[row : row + 1]).to(device),
                    torch.from_numpy(packed.attention_mask[row : row + 1]).to(device),
                )
                total, count = model.loss(batch)
                sums.append(float(total))
                tokens += int(count)
    return sums, tokens


class Conversations(LoadedTask):
    """Conversations, written by the chat template of the run."""

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        if tokenizer is None:
            raise ValueError("chat teaches a trained model: add --from RUN")
        template = run_template(config)
        require_writable(template, tokenizer)
        training, validation = tables(config.data, config.train.seed)
        length = config.model.length
        encoded = encode_conversations(training, template, tokenizer, length)
        held_back = encode_conversations(validation, template, tokenizer, length)
        self.tokenizer, self.questions = tokenizer, validation
        self.validation = held_back.examples[:MAX_VALIDATION]
        self.config = replace(config, generation=replace(config.generation, chat_template=template))
        self.batches = data.PackedBatches(
            encoded.examples, config.train.batch_size, config.train.seed, length, tokenizer.padding
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{identity(encoded.examples)} {identity(held_back.examples)}"
        notes = [
            f"{len(encoded.examples):,} conversations in {len(self.batches.rows):,} rows of at "
            f"most {length} tokens"
        ]
        if encoded.cut:
            notes.append(
                f"{encoded.cut:,} conversations are longer than {length} tokens: their ends are "
                f"not learned, and {encoded.left_out:,} of them, which have no answer before, are "
                f"left out"
            )
        self.notes = tuple(notes)

    def batch(self, step: int) -> PackedBatch:
        return packed_batch(self.batches.batch(step))

    def evaluate(self, model: Transformer) -> Measured:
        rows = rows_at_a_time(self.config, 16)
        report = chat_report(model, self.validation, self.config, self.tokenizer, rows)
        return Measured(report.metrics, report.scores, report.protocol)

    def chance(self) -> float:
        return math.log(self.tokenizer.size)

    def sample(self, model: Transformer) -> str:
        """An answer to the first held-back question, at temperature 0.5."""
        writer = LanguageModel(model, self.config.model, self.config.generation, self.tokenizer)
        messages = data.parse_conversation(self.questions.texts[0])
        asked = messages[: 1 + next(i for i, m in enumerate(messages) if m["role"] == "user")]
        prompt = chat_prompt(writer, asked, self.config.model.name)
        config = GenerationConfig(
            sampling=Sampling(temperature=0.5),
            max_tokens=SAMPLE_TOKENS,
            eos_ids=prompt.eos_ids,
            stop=prompt.stop,
        )
        if len(prompt.ids) > self.config.model.length:
            return ""
        answer = "".join(token.text for token in stream(writer, prompt.ids, config=config))
        return f"{asked[-1]['content']}\n-> {answer}"


class ChatTask(Task):
    """Predict the answers of conversations."""

    metric: ClassVar[str] = "loss"
    padded: ClassVar[bool] = True
    evaluation_rows: ClassVar[int | None] = 16
    loaded: ClassVar[type[LoadedTask] | None] = Conversations

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        return tables(config.data, config.train.seed)[0].texts

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        ids = torch.zeros(rows, config.model.length, dtype=torch.long)
        return PackedBatch(ids, ids, ids == 0, None, ids), None

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options = request.config, request.options
        if options.own_part is not None:
            table = tables(config.data, config.train.seed)[options.own_part]
        else:
            table = data.read_conversations(options.data or config.data.source)
        template = run_template(config)
        encoded = encode_conversations(table, template, request.tokenizer, config.model.length)
        notes = (f"{encoded.cut:,} conversations are cut",) if encoded.cut else ()
        return EvaluationData(request, table.name, table.texts, encoded.examples, notes)

    def measure(self, model: Transformer, prepared: EvaluationData) -> ChatReport:
        request = prepared.request
        report = chat_report(model, prepared.content, request.config, request.tokenizer, 16)
        return replace(
            report, protocol=f"{report.protocol}; {request.options.describe(prepared.name)}"
        )


@dataclass(frozen=True)
class ChatReport(Report):
    """The loss of a model on the answers of conversations."""

    loss: float  # nats per token of the answers
    tokens: int
    scores: Sequence[float]  # of each conversation; their mean is the loss
    protocol: str

    @property
    def metrics(self) -> dict[str, float]:
        return {"loss": self.loss, "perplexity": math.exp(min(self.loss, 700))}

    def lines(self, in_float32: ChatReport | None = None) -> list[str]:
        before = []
        if in_float32 is not None:
            before = [f"in float32          {in_float32.loss:.4f} loss per token"]
        return [
            *before,
            f"loss per token      {self.loss:.4f}",
            f"perplexity          {self.metrics['perplexity']:.4f} per token",
            f"protocol: {self.protocol}",
        ]


def chat_report(
    model: Transformer,
    examples: Sequence[data.Example],
    config: RunConfig,
    tokenizer: Tokenizer,
    rows: int,
) -> ChatReport:
    """Measure a model on the answers of conversations, each read alone."""
    sums, tokens = answer_losses(model, examples, config.model.length, tokenizer.padding, rows)
    protocol = f"{tokens:,} tokens of the answers in {len(sums):,} conversations"
    return ChatReport(sum(sums) / tokens, tokens, shares(sums, tokens), protocol)


def tables(config: DataConfig, seed: int) -> tuple[data.Table, data.Table]:
    """The training conversations and the validation conversations."""
    if config.source in data.CORPORA:
        raise ValueError(
            f"{config.source} has no conversations: give --data a .jsonl file with messages"
        )
    table = data.read_conversations(config.source)
    if config.validation is not None:
        return table, data.read_conversations(config.validation)
    return data.split_rows(table, config.validation_fraction, seed)


def run_template(config: RunConfig) -> ChatTemplate:
    """The template that was given, or that of the model, or a plain one."""
    own = config.generation.chat_template or ChatTemplate()
    if config.data.template is None:
        return own
    content = safe_files.read(Path(config.data.template), 4 * MAX_TEMPLATE, "MAX_TEMPLATE")
    template = replace(own, source=content.decode("utf-8", "replace"))
    template.check()
    return template


def require_writable(template: ChatTemplate, tokenizer: Tokenizer) -> None:
    """Raise ValueError if the tokenizer cannot write what ends an answer."""
    end = template.answer_end()
    if end.strip() in tokenizer.specials:
        return
    if end and tokenizer.decode(tokenizer.encode_with_specials(end)) != end:
        raise ValueError(
            f"answers end with {end!r:.60} in the chat template, but this tokenizer "
            f"({tokenizer.kind}) cannot write that: give --data.template a template that it can"
        )
