"""Configs of models and runs: frozen dataclasses, validated, with exact JSON round trips.

A choice between kinds is a value (`position: Learned | Rotary | ...`), so a number that makes
sense for one kind only lives in that kind. Patterns are those of `core.patterns`. Nothing here
loads torch: `--help` and `families` stay instant. `builder.py` turns these values into modules.
"""

from clearformer.config.adapters import Adapter, DoRA, LoRA
from clearformer.config.codec import to_json
from clearformer.config.generation import GenerationDefaults
from clearformer.config.heads import (
    AnswerSpan,
    Classifier,
    Features,
    Head,
    MaskedToken,
    MultiLabelClassifier,
    MultipleChoice,
    NextSentence,
    NextToken,
    PairClassifier,
    Pretraining,
    Regressor,
    TextHead,
    TextTask,
    TokenClassifier,
    UntrainedHead,
    Verb,
)
from clearformer.config.layers import Activation, LayerNorm, Norm, RMSNorm
from clearformer.config.model import (
    AnyModelConfig,
    Biases,
    Cache,
    Dropout,
    HiddenMemory,
    KVCache,
    ModelConfig,
    Neighbours,
    Seq2SeqConfig,
    model_and_generation_from_json,
    model_from_json,
    strides,
)
from clearformer.config.ngrams import LogCountRatio, Ngrams, Uniform
from clearformer.config.run import (
    AdamW,
    Constant,
    Cosine,
    DataConfig,
    InverseSqrt,
    Linear,
    Masking,
    Muon,
    Optimizer,
    Origin,
    RunConfig,
    Schedule,
    StableThenDecay,
    TrainConfig,
    run_from_json,
)
from clearformer.core.patterns import (
    Both,
    Causal,
    Either,
    Fixed,
    Full,
    Local,
    Pattern,
    Strided,
    Without,
)
from clearformer.core.positions import Learned, NoPosition, Position, RelativeXL, Rotary, Sinusoidal
from clearformer.extensions.patterns import Each, Graph, PerHead, Region, Row, Shifted, Summary
from clearformer.extensions.positions import ALiBi, Grid, LinearScaling, Llama3Scaling

__all__ = [
    "ALiBi", "Activation", "AdamW", "Adapter", "AnswerSpan", "AnyModelConfig", "Biases", "Both",
    "Cache", "Causal", "Classifier", "Constant", "Cosine", "DataConfig", "DoRA", "Dropout", "Each",
    "Either", "Features", "Fixed", "Full", "GenerationDefaults", "Graph", "Grid", "Head",
    "HiddenMemory", "InverseSqrt", "KVCache", "LayerNorm", "Learned", "Linear", "LinearScaling",
    "Llama3Scaling", "LoRA", "Local", "LogCountRatio", "MaskedToken", "Masking", "ModelConfig",
    "MultiLabelClassifier", "MultipleChoice", "Muon", "Neighbours", "NextSentence", "NextToken",
    "Ngrams", "NoPosition", "Norm", "Optimizer", "Origin", "PairClassifier", "Pattern", "PerHead",
    "Position", "Pretraining", "RMSNorm", "Region", "Regressor", "RelativeXL", "Rotary", "Row",
    "RunConfig", "Schedule", "Seq2SeqConfig", "Shifted", "Sinusoidal", "StableThenDecay", "Strided",
    "Summary", "TextHead", "TextTask", "TokenClassifier", "TrainConfig", "Uniform", "UntrainedHead",
    "Verb", "Without", "model_and_generation_from_json", "model_from_json", "run_from_json",
    "strides", "to_json",
]  # fmt: skip
