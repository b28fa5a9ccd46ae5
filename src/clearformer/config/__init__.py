"""What a model and a run are, as plain values: frozen, checked, and the same in JSON.

A choice between kinds is a value of a closed union (`position: Learned | Rotary | ...`), so a
number that makes sense for one kind only lives in that kind. No torch here: `--help` and
`families` stay instant. `build.py` turns these values into modules.
"""

from clearformer.config.codec import to_json
from clearformer.config.model import (
    ALiBi,
    AnyModelConfig,
    Biases,
    Both,
    Causal,
    Classifier,
    Dropout,
    Either,
    Fixed,
    Full,
    Graph,
    Grid,
    Head,
    HiddenMemory,
    KVCache,
    LayerNorm,
    Learned,
    Local,
    ModelConfig,
    NextToken,
    NoPosition,
    Norm,
    Past,
    Pattern,
    PerHead,
    Position,
    Pretraining,
    Region,
    RelativeXL,
    RMSNorm,
    Rotary,
    Row,
    Seq2SeqConfig,
    Shifted,
    Sinusoidal,
    Strided,
    model_from_json,
    strides,
)
from clearformer.config.run import (
    AdamW,
    Constant,
    Cosine,
    DataConfig,
    InverseSqrt,
    Linear,
    Muon,
    Optimizer,
    RunConfig,
    Schedule,
    StableThenDecay,
    TrainConfig,
    run_from_json,
)

__all__ = [
    "ALiBi", "AdamW", "AnyModelConfig", "Biases", "Both", "Causal", "Classifier", "Constant",
    "Cosine", "DataConfig", "Dropout", "Either", "Fixed", "Full", "Graph", "Grid", "Head",
    "HiddenMemory", "InverseSqrt", "KVCache", "LayerNorm", "Learned", "Linear", "Local",
    "ModelConfig", "Muon", "NextToken", "NoPosition", "Norm", "Optimizer", "Past", "Pattern",
    "PerHead", "Position", "Pretraining", "RMSNorm", "Region", "RelativeXL", "Rotary", "Row",
    "RunConfig", "Schedule", "Seq2SeqConfig", "Shifted", "Sinusoidal", "StableThenDecay",
    "Strided", "TrainConfig", "model_from_json", "run_from_json", "strides",
    "to_json",
]  # fmt: skip
