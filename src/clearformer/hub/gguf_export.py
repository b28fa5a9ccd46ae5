"""Exports a model as a GGUF file, for llama.cpp and the tools that are built on it.

The `gguf` library writes the file and quantizes. The file is imported again and compared with the
original before it gets its final name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from clearformer import __version__
from clearformer.config import GenerationDefaults, ModelConfig
from clearformer.core.model import Transformer
from clearformer.generate.language_model import LanguageModel
from clearformer.hub.compare import compare, measure
from clearformer.hub.export_family import choose_family
from clearformer.hub.exporting import Exported
from clearformer.hub.gguf_architectures import FACTORS, architecture_for, rotary_factors
from clearformer.hub.gguf_file import gguf_library
from clearformer.hub.gguf_tokenizer import write_tokenizer
from clearformer.hub.importing import GGUF, import_checkpoint
from clearformer.hub.tensor_names import their_names
from clearformer.hub.write_run import atomic_file, require_unused
from clearformer.runs import state
from clearformer.text import Tokenizer

GGUFWeights = Literal["f32", "f16", "q8_0", "q4_0"]
WEIGHTS: tuple[GGUFWeights, ...] = get_args(GGUFWeights)
FULL_PRECISION = ("position_embd.weight", FACTORS)  # llama.cpp adds the positions in float32
EMBEDDINGS = ("token_embd.weight", "output.weight")  # in 4 bits these lose the most
LARGEST_HALF = 65504.0


def to_gguf(
    model: Transformer,
    config: ModelConfig,
    generation: GenerationDefaults,
    tokenizer: Tokenizer,
    out: Path,
    weights: GGUFWeights = "f32",
) -> Exported:
    """Write one file that llama.cpp opens; vectors stay float32 whatever the `weights`."""
    library = gguf_library()
    if out.suffix != GGUF:
        raise ValueError(f"{out} must end in {GGUF}")
    require_unused(out)
    config.require_verb("generate")
    _, config, tensors, settings = choose_family(config, state.weights(model))
    architecture = architecture_for(config, settings)
    language_model = LanguageModel(model, config, generation, tokenizer)
    keys, notes = write_tokenizer(tokenizer, language_model.eos_ids(), generation.chat_template)
    renames = architecture.names(config)
    theirs: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        names, layout = their_names(renames, name)
        parts = layout.split(tensor.float().cpu(), config)
        theirs |= dict(zip(names, parts, strict=True))
    factors = rotary_factors(config)
    if factors is not None:
        theirs[FACTORS] = factors
    stored = {name: _stored(library, name, each, weights) for name, each in theirs.items()}
    unlike = [n for n, (kind, each) in stored.items() if each.ndim > 1 and _other(kind, n, weights)]
    if unlike:
        notes += (
            f"{len(unlike)} matrices are float16: their rows cannot be split into blocks of 32",
        )
    with atomic_file(out) as temporary:
        writer = library.GGUFWriter(temporary, architecture.name)
        _add_keys(writer, library, config, weights)
        _add_all(writer, architecture.write_settings(settings) | keys)
        for name, (kind, data) in stored.items():
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        if weights == "f32":
            difference, tokens = compare(model, temporary, config, generation)
        else:
            copy = import_checkpoint(temporary).model()
            difference, tokens = measure(model, copy, config, generation)
    return Exported(out, f"GGUF, {architecture.name}, {weights}", difference, tokens, notes)


def _stored(library: Any, name: str, tensor: Tensor, weights: str) -> tuple[Any, Any]:
    """The type of a tensor in the file, and its numbers as they are stored."""
    values = tensor.contiguous().numpy()
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has weights that are not finite: the model is damaged")
    kinds = library.GGMLQuantizationType
    kind = kinds[weights.upper()]
    if values.ndim == 1 or name in FULL_PRECISION:
        kind = kinds.F32
    elif kind == kinds.Q4_0 and name in EMBEDDINGS:
        kind = kinds.Q8_0
    if kind not in (kinds.F32, kinds.F16) and values.shape[-1] % 32:
        kind = kinds.F16
    if kind == kinds.F16 and np.abs(values).max() > LARGEST_HALF:
        raise ValueError(
            f"{name} has weights above {LARGEST_HALF:,.0f}, too large for f16: use f32"
        )
    return kind, library.quantize(values, kind)


def _other(kind: Any, name: str, weights: str) -> bool:
    """Whether a matrix has another type than asked for, because of its size."""
    return kind.name == "F16" and weights != "f16" and name not in FULL_PRECISION


def _add_keys(writer: Any, library: Any, config: ModelConfig, weights: GGUFWeights) -> None:
    file_types = {
        "f32": library.LlamaFileType.ALL_F32,
        "f16": library.LlamaFileType.MOSTLY_F16,
        "q8_0": library.LlamaFileType.MOSTLY_Q8_0,
        "q4_0": library.LlamaFileType.MOSTLY_Q4_0,
    }
    writer.add_type("model")
    writer.add_name(config.name)
    writer.add_description(f"exported by clearformer {__version__}")
    writer.add_file_type(file_types[weights])
    writer.add_quantization_version(library.GGML_QUANT_VERSION)


def _add_all(writer: Any, keys: Mapping[str, Any]) -> None:
    for key, value in keys.items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case _:
                writer.add_array(key, value)
