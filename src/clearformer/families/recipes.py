"""How each family is trained unless told otherwise: data, optimizer, schedule, batch.

Starting points, not laws: every number can be overridden on the command line.
"""

from clearformer.config import (
    AdamW,
    AnyModelConfig,
    Classifier,
    Cosine,
    DataConfig,
    Linear,
    Muon,
    StableThenDecay,
    TrainConfig,
)


def recipe(model: AnyModelConfig) -> tuple[DataConfig, TrainConfig]:
    """Data and training that suit a model; the budget is two minutes."""
    family = model.name.partition("-")[0]
    if isinstance(model.head, Classifier):
        data = DataConfig(source="imdb", tokenizer="words", vocabulary=model.vocabulary)
        train = TrainConfig(
            lr=3e-4, batch=32, minutes=2, optimizer=AdamW(), schedule=Linear(warmup=100)
        )
        return data, train
    data = DataConfig(source="python-docs")
    if family == "modern":
        return data, TrainConfig(
            lr=0.02,
            batch=8,
            minutes=2,
            optimizer=Muon(adam_lr=3e-3, adam=AdamW(weight_decay=0.0)),
            schedule=StableThenDecay(warmup=20, decay=0.5),
        )
    # About as many tokens in a step, whatever the length.
    batch = {"xl": 16}.get(family, max(1, min(8, 8192 // model.length)))
    return data, TrainConfig(
        lr=1e-3, batch=batch, minutes=2, optimizer=AdamW(), schedule=Cosine(warmup=100, final=0.1)
    )
