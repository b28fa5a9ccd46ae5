"""How each family is trained unless told otherwise: data, optimizer, schedule, batch.

Starting points, not laws: every number can be overridden on the command line.
"""

from clearformer.config import (
    AdamW,
    AnyModelConfig,
    Classifier,
    Cosine,
    DataConfig,
    InverseSqrt,
    Linear,
    Muon,
    Seq2SeqConfig,
    StableThenDecay,
    TrainConfig,
)

# How an encoder-decoder learns from pairs, by its size.
PUBLISHED = TrainConfig(
    # Sections 5.1 to 5.4 of the paper; its rate, width^-0.5 * warmup^-0.5, is 7e-4 for base.
    lr=7e-4,
    batch=2048,
    tokens=25_000,
    minutes=2,
    optimizer=AdamW(beta2=0.98, epsilon=1e-9, weight_decay=0.0),
    schedule=InverseSqrt(warmup=4000),
    clip=None,
    smoothing=0.1,
)
PAIRS = {
    "base": PUBLISHED,
    "big": PUBLISHED,
    # Pre-norm needs no long warm-up, and a rate that ends at zero suits a budget. Muon works here;
    # whether AdamW would do as well has not been measured to the end (docs/log.md).
    "small": TrainConfig(
        lr=0.02,
        batch=512,
        tokens=2048,
        minutes=60,
        optimizer=Muon(adam_lr=3e-3, adam=AdamW(beta2=0.98, weight_decay=0.0)),
        schedule=StableThenDecay(warmup=50, decay=0.6),
        smoothing=0.1,
        keep=5,
    ),
    "tiny": TrainConfig(
        lr=3e-3,
        batch=512,
        tokens=2048,
        minutes=4,
        optimizer=AdamW(beta2=0.98, epsilon=1e-9, weight_decay=0.0),
        schedule=InverseSqrt(warmup=200),
        smoothing=0.1,
    ),
}


def recipe(model: AnyModelConfig) -> tuple[DataConfig, TrainConfig]:
    """Data and training that suit a model; the budget is two minutes unless a size has its own."""
    family = model.name.partition("-")[0]
    if isinstance(model.head, Classifier):
        data = DataConfig(source="imdb", tokenizer="words", vocabulary=model.vocabulary)
        train = TrainConfig(
            lr=3e-4, batch=32, minutes=2, optimizer=AdamW(), schedule=Linear(warmup=100)
        )
        return data, train
    if isinstance(model, Seq2SeqConfig):
        data = DataConfig(source="number-words", tokenizer="bpe", vocabulary=model.vocabulary)
        return data, PAIRS[model.name.partition("-")[2]]
    data = DataConfig(source="python-docs")
    if family == "modern":
        return data, TrainConfig(
            lr=0.02,
            batch=8,
            minutes=2,
            optimizer=Muon(adam_lr=3e-3, adam=AdamW(weight_decay=0.0)),
            schedule=StableThenDecay(warmup=20, decay=0.5),
        )
    return data, TrainConfig(
        lr=1e-3, batch=8, minutes=2, optimizer=AdamW(), schedule=Cosine(warmup=100, final=0.1)
    )
