"""Model families: functions that return configs, with the published sizes.

`preset("gpt2-xl")` is `gpt2("xl")`. A family only sets values of a config; nothing here
is a module or imports torch.
"""

from collections.abc import Callable, Mapping
from typing import Any

from clearformer.config import AnyModelConfig
from clearformer.did_you_mean import nearest
from clearformer.families.bert import BERT, bert
from clearformer.families.classifier import CLASSIFIER, classifier
from clearformer.families.generator import GENERATOR, generator
from clearformer.families.gpt2 import GPT2, gpt2
from clearformer.families.modern import MODERN, modern
from clearformer.families.original import ORIGINAL, original
from clearformer.families.sparse import SPARSE, sparse
from clearformer.families.xl import XL, xl

__all__ = [
    "FAMILIES",
    "bert",
    "classifier",
    "generator",
    "gpt2",
    "modern",
    "original",
    "preset",
    "presets",
    "sparse",
    "xl",
]

# name: (the function, its sizes)
FAMILIES: Mapping[str, tuple[Callable[[str], AnyModelConfig], Mapping[str, Any]]] = {
    "classifier": (classifier, CLASSIFIER),
    "generator": (generator, GENERATOR),
    "original": (original, ORIGINAL),
    "bert": (bert, BERT),
    "gpt2": (gpt2, GPT2),
    "xl": (xl, XL),
    "sparse": (sparse, SPARSE),
    "modern": (modern, MODERN),
}


def presets() -> list[str]:
    """All preset names."""
    return [f"{family}-{size}" for family, (_, sizes) in FAMILIES.items() for size in sizes]


def preset(name: str) -> AnyModelConfig:
    """Look a config up by its name.

    Args:
        name (str): Family and size, such as ``"gpt2-xl"``; a family alone means its first size.

    Returns:
        ModelConfig: The config; ``dataclasses.replace`` changes it.

    Raises:
        ValueError: For an unknown name, with the nearest one.
    """
    family, _, size = name.partition("-")
    if family not in FAMILIES:
        raise ValueError(f"there is no model {name!r}: {nearest(name, [*FAMILIES, *presets()])}")
    make, sizes = FAMILIES[family]
    return make(size or next(iter(sizes)))
