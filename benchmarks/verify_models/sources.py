"""Sources that bugs are planted in: a text is replaced, and the changed module imported."""

import importlib.util
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

HERE = Path(__file__).parent
Edit = tuple[str, str]


@dataclass(frozen=True)
class Source:
    """A source file and how a model is built of the module that it becomes."""

    name: str
    file: Callable[[], Path]
    build: Callable[[Any], nn.Module]
    package: str = ""

    def model(self, edits: Sequence[Edit] = ()) -> nn.Module:
        """A model of this source with the edits made; each must be found."""
        text = self.file().read_text()
        for old, new in edits:
            if old not in text:
                raise LookupError(f"{self.name}: {old!r} is not in the source")
            text = text.replace(old, new)
        return self.build(_imported(self.name, text, self.package))


def _imported(name: str, text: str, package: str) -> types.ModuleType:
    folder = Path(tempfile.mkdtemp(prefix="mutant"))
    path = folder / f"{name}.py"
    path.write_text(text)
    full = f"{package}.mutant_{name}" if package else f"mutant_{name}_{folder.name}"
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


def _installed(name: str) -> Callable[[], Path]:
    def file() -> Path:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        return Path(spec.origin)

    return file


def file_of(name: str) -> Callable[[], Path]:
    return lambda: HERE / f"{name}.py"


# --- models that are built of a changed source ------------------------------------------------


def _ours(attribute: str) -> Callable[[Any], nn.Module]:
    """Our GPT-2 with one class taken from the changed source."""

    def build(module: Any) -> nn.Module:
        from clearformer.builder import build as build_model
        from clearformer.families import preset

        sizes: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4, "hidden": 64, "length": 32}
        config = replace(preset("gpt2-small"), vocabulary=50, **sizes)
        model = build_model(config)
        for part in model.modules():
            if type(part).__name__ == attribute and not isinstance(part, nn.Embedding):
                part.__class__ = getattr(module, attribute)
            elif attribute == "kernel" and type(part).__name__ == "Attention":
                part.kernel = module.explicit
        return model

    return build


def _gpt2(module: Any) -> nn.Module:
    from transformers import GPT2Config

    sizes = {"vocab_size": 50, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return module.GPT2LMHeadModel(GPT2Config(**sizes, attn_implementation="eager"))


def _bert(module: Any) -> nn.Module:
    from transformers import BertConfig

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(vocab_size=50, intermediate_size=64, max_position_embeddings=32, **sizes,
                        attn_implementation="eager")  # fmt: skip
    return module.BertForMaskedLM(config)


def _llama(module: Any) -> nn.Module:
    from transformers import LlamaConfig

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=50, intermediate_size=64, num_key_value_heads=2, **sizes,
                         max_position_embeddings=32, attn_implementation="eager")  # fmt: skip
    return module.LlamaForCausalLM(config)


def _t5(module: Any) -> nn.Module:
    from transformers import T5Config

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    return module.T5ForConditionalGeneration(
        T5Config(vocab_size=50, attn_implementation="eager", **sizes)
    )


def _x_transformers(module: Any) -> nn.Module:
    import x_transformers.x_transformers as library

    kept = library.Attend
    library.Attend = module.Attend
    try:
        layers = library.Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, attn_dropout=0.1)
        return library.TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers)
    finally:
        library.Attend = kept


def _x_wrapper(module: Any) -> nn.Module:
    layers = module.Decoder(dim=32, depth=2, heads=4, attn_dim_head=8)
    return module.TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers)


def class_of(name: str, **arguments: Any) -> Callable[[Any], nn.Module]:
    return lambda module: getattr(module, name)(**arguments)


SOURCES = {
    source.name: source
    for source in (
        Source("gpt", file_of("compact_gpt"), class_of("GPT")),
        Source("gpt_attention", file_of("compact_gpt"), class_of(
            "CausalSelfAttention", width=32, heads=4, block_size=24, dropout=0.1)),
        Source("rotary", file_of("rotary_gpt"), class_of("RotaryLM")),
        Source("encoder", file_of("padded_encoder"), class_of("PaddedEncoder")),
        Source("pre_encoder", file_of("padded_encoder"), class_of("PaddedEncoder", norm_first=True)),
        Source("seed", file_of("seed_attention"), class_of("SelfAttention")),
        Source("seed_masked", file_of("seed_attention"), class_of("SelfAttention", mask=True)),
        Source("seed_second", file_of("seed_attention"), class_of("SecondSelfAttention")),
        Source("seed_generator", file_of("seed_attention"), class_of("GeneratorTransformer")),
        Source("seed_classifier", file_of("seed_attention"), class_of("ClassifierTransformer")),
        Source("translator", file_of("translator"), class_of("Translator")),
        Source("torch_lm", file_of("torch_layers"), class_of("TorchLanguageModel")),
        Source("torch_encoder", file_of("torch_layers"), class_of("TorchEncoder")),
        Source("torch_attention", file_of("torch_layers"), class_of("TorchAttention")),
        Source("ours_attention", _installed("clearformer.core.attention"), _ours("Attention")),
        Source("ours_kernel", _installed("clearformer.core.kernels"), _ours("kernel")),
        Source("ours_embedding", _installed("clearformer.core.embedding"), _ours("Embedding")),
        Source("ours_block", _installed("clearformer.core.block"), _ours("Block")),
        Source("hf_gpt2", _installed("transformers.models.gpt2.modeling_gpt2"), _gpt2,
               "transformers.models.gpt2"),
        Source("hf_bert", _installed("transformers.models.bert.modeling_bert"), _bert,
               "transformers.models.bert"),
        Source("hf_llama", _installed("transformers.models.llama.modeling_llama"), _llama,
               "transformers.models.llama"),
        Source("hf_t5", _installed("transformers.models.t5.modeling_t5"), _t5,
               "transformers.models.t5"),
        Source("x_attend", _installed("x_transformers.attend"), _x_transformers, "x_transformers"),
        Source("x_wrapper", _installed("x_transformers.x_transformers"), _x_wrapper,
               "x_transformers"),
    )
}  # fmt: skip
