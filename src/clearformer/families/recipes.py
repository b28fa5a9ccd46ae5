"""Training recipes: the data, optimizer, schedule and batch size of each family by default.

Starting points: every number can be overridden on the command line.
"""

from collections.abc import Callable
from dataclasses import replace

from clearformer.config import (
    AdamW,
    AnyModelConfig,
    Cosine,
    DataConfig,
    InverseSqrt,
    Linear,
    Masking,
    Muon,
    StableThenDecay,
    TrainConfig,
)

Recipe = tuple[DataConfig, TrainConfig]

# How an encoder-decoder learns from pairs.
PUBLISHED = TrainConfig(
    # Sections 5.1 to 5.4 of the paper; its rate, width^-0.5 * warmup^-0.5, is 7e-4 for base.
    learning_rate=7e-4,
    batch_size=2048,
    batch_tokens=25_000,
    minutes=2,
    optimizer=AdamW(beta2=0.98, epsilon=1e-9, weight_decay=0.0),
    schedule=InverseSqrt(warmup=4000),
    gradient_clip=None,
    label_smoothing=0.1,
)
PAIRS = {  # by preset; any other model has the published size, or is near it
    "original-base": PUBLISHED,
    "original-big": PUBLISHED,
    # Pre-norm needs no long warm-up, and a rate that ends at zero suits a budget; one that falls
    # from the start, since at the full rate little is learned after the first minutes. Muon works
    # here; whether AdamW would do as well has not been measured to the end (docs/log.md).
    "original-small": TrainConfig(
        learning_rate=0.02,
        batch_size=256,
        batch_tokens=4096,
        minutes=60,
        optimizer=Muon(adam_learning_rate=3e-3, adam=AdamW(beta2=0.98, weight_decay=0.0)),
        schedule=Linear(warmup=50),
        label_smoothing=0.1,
        keep_checkpoints=5,
    ),
    "original-tiny": TrainConfig(
        learning_rate=3e-3,
        batch_size=512,
        batch_tokens=2048,
        minutes=4,
        optimizer=AdamW(beta2=0.98, epsilon=1e-9, weight_decay=0.0),
        schedule=InverseSqrt(warmup=200),
        label_smoothing=0.1,
    ),
}


TEXT = DataConfig(source="python-docs")


def recipe(model: AnyModelConfig) -> Recipe:
    """Data and training for a model; the budget is two minutes unless a preset has its own."""
    data, train = RECIPES[model.verbs[0]](model)
    return own_data(data, model), train


def _language_model(model: AnyModelConfig) -> Recipe:
    return FAMILIES.get(model.family, _generator)(model)


def _generator(model: AnyModelConfig) -> Recipe:
    # About as many tokens in a step, whatever the length.
    batch = max(1, min(8, 8192 // model.length))
    return TEXT, TrainConfig(
        learning_rate=1e-3,
        batch_size=batch,
        minutes=2,
        optimizer=AdamW(),
        schedule=Cosine(warmup=100, final=0.1),
    )


def _gpt2(model: AnyModelConfig) -> Recipe:
    return replace(TEXT, tokenizer="bpe"), TrainConfig(
        learning_rate=6e-4,
        batch_size=8,
        minutes=2,
        optimizer=AdamW(),
        schedule=Cosine(warmup=100, final=0.1),
    )


def _muon(batch: int) -> Recipe:
    # After 400 steps an xl-tiny is at 2.73 bits per byte of enwik8, with AdamW at its best at 2.95
    # (docs/log.md).
    return TEXT, TrainConfig(
        learning_rate=0.02,
        batch_size=batch,
        minutes=2,
        optimizer=Muon(adam_learning_rate=3e-3, adam=AdamW(weight_decay=0.0)),
        schedule=StableThenDecay(warmup=20, decay=0.5),
    )


def _masked(model: AnyModelConfig) -> Recipe:
    # A vocabulary of thirty thousand words would take too many of a small model's parameters.
    vocabulary = 8192 if model.width <= 256 else None
    data = replace(TEXT, tokenizer="wordpiece", vocabulary=vocabulary, masking=Masking())
    if model.head.sentence_pairs:
        # The published 1e-4 is for batches of 256 and days; this is for minutes.
        return data, TrainConfig(
            learning_rate=1e-3 if model.width <= 256 else 5e-4,
            batch_size=32,
            minutes=2,
            optimizer=AdamW(beta2=0.98, weight_decay=0.01),
            schedule=Linear(warmup=100),
        )
    # Small steps of many guesses, by AdamW: Muon finds more hidden words in the same time, but
    # leaves matrices too large to be fine-tuned (docs/log.md).
    return replace(data, masking=Masking(rate=0.4)), TrainConfig(
        learning_rate=1.5e-3 if model.width <= 128 else 1e-3,
        batch_size=8,
        minutes=2,
        optimizer=AdamW(),
        schedule=Linear(warmup=100),
    )


def _pairs(model: AnyModelConfig) -> Recipe:
    data = DataConfig(source="number-words", tokenizer="bpe", vocabulary=model.vocabulary)
    return data, PAIRS.get(model.name, PUBLISHED)


def _classifier(model: AnyModelConfig) -> Recipe:
    data = DataConfig(source="imdb", tokenizer="words", vocabulary=model.vocabulary)
    if model.neighbours is not None or model.ngrams is not None:
        # Large embeddings of words and pairs, few matrices: embeddings have a high learning
        # rate, and all weights decay.
        return replace(data, truncate_to="ends"), TrainConfig(
            learning_rate=0.02,
            batch_size=64,
            minutes=2,
            optimizer=Muon(adam_learning_rate=3e-3, adam=AdamW(beta2=0.98, weight_decay=0.01)),
            schedule=Linear(warmup=50),
            label_smoothing=0.1,
            evaluations=5,
        )
    # Post-norm blocks under tables drawn from N(0, 1): AdamW is slow at 3e-4 and falls back at
    # 1e-3, Muon at 0.01 too (docs/log.md).
    return data, TrainConfig(
        learning_rate=0.003,
        batch_size=16,
        minutes=2,
        optimizer=Muon(adam_learning_rate=1e-3),
        schedule=Linear(warmup=100),
    )


def _regressor(model: AnyModelConfig) -> Recipe:
    data, train = _classifier(model)
    return data, without_smoothing(train, model)


def without_smoothing(train: TrainConfig, model: AnyModelConfig) -> TrainConfig:
    """Training settings without label smoothing for a model that predicts numbers."""
    return replace(train, label_smoothing=0.0) if "classify" not in model.verbs else train


def own_data(data: DataConfig, model: AnyModelConfig) -> DataConfig:
    """Data without a corpus for models that no corpus has labels for."""
    head = model.head
    labels = not head.two_texts and head.text_task in (None, "classes")
    return data if labels else replace(data, source="")


def _finetuned(model: AnyModelConfig) -> Recipe:
    # Nobody's words are labelled by default: the data is always the user's.
    data = DataConfig(source="", tokenizer="wordpiece", text_column="tokens", label_column="labels")
    return data, TrainConfig(
        learning_rate=1e-3,
        batch_size=16,
        minutes=2,
        optimizer=AdamW(beta2=0.999, weight_decay=0.01),
        schedule=Linear(warmup=100),
    )


# The recipe depends on the head of a model; that of a generator depends on its family.
RECIPES: dict[str, Callable[[AnyModelConfig], Recipe]] = {
    "generate": _language_model,
    "embed": _language_model,
    "fill": _masked,
    "classify": _classifier,
    "predict": _regressor,
    "label": _finetuned,
    "answer": _finetuned,
    "translate": _pairs,
}
FAMILIES: dict[str | None, Callable[[AnyModelConfig], Recipe]] = {
    "gpt2": _gpt2,
    "modern": lambda model: _muon(batch=8),
    "xl": lambda model: _muon(batch=16),
}


def going_on(model: AnyModelConfig, tokenizer: str, vocabulary: int) -> Recipe:
    """Data and training settings for fine-tuning a model with its tokenizer.

    Devlin et al. 2018, appendix A.3: three epochs at 2e-5 to 5e-5, and more for smaller models
    (Turc et al. 2019: up to 3e-4).
    """
    data, _ = recipe(model)
    data = replace(data, tokenizer=tokenizer, vocabulary=vocabulary)  # type: ignore[arg-type]
    small = model.width <= 512
    translates = "translate" in model.verbs
    writes = "generate" in model.verbs or "fill" in model.verbs
    return data, TrainConfig(
        learning_rate=1e-4 if small else 3e-5,
        batch_size=8 if writes else 32,
        batch_tokens=4096 if translates else None,
        epochs=1 if writes else 3,
        optimizer=AdamW(beta2=0.999, weight_decay=0.01),
        schedule=Linear(warmup=20),
        label_smoothing=0.1 if translates else 0.0,
    )
