"""Correct models: the unmodified sources, torch's layers, x-transformers with its options, ours,
and small models of transformers."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from verify_models.fresh import BUGS
from verify_models.sources import SOURCES, Source, class_of, file_of
from verify_models.styles.bugs import STYLES, style_source

Made = tuple[str, Callable[[], nn.Module]]
X_OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"rotary_pos_emb": True}, {"alibi_pos_bias": True}, {"rel_pos_bias": True},
    {"use_rmsnorm": True}, {"ff_glu": True}, {"attn_flash": True}, {"attn_kv_heads": 2},
    {"attn_qk_norm": True}, {"sandwich_norm": True}, {"pre_norm": False}, {"macaron": True},
    {"attn_gate_values": True}, {"ff_swish": True, "ff_glu": True}, {"use_scalenorm": True},
)  # fmt: skip
OUR_SIZES: dict[str, Any] = {
    "layers": 2,
    "width": 32,
    "heads": 4,
    "hidden": 48,
    "length": 64,
    "vocabulary": 60,
}


def correct_models(families: bool) -> Iterator[Made]:
    """Names and makers of models without a bug; `families`: those of transformers too."""
    for name, source in SOURCES.items():
        yield name, source.model
    for name in dict.fromkeys(each[1] for each in BUGS):
        yield name, Source(f"fresh_{name}", file_of("fresh"), class_of(name)).model
    for style, (names, _) in STYLES.items():
        for name in names:
            yield name, style_source(style, name).model
    yield from _torch()
    yield from _x_transformers()
    yield from _ours()
    if families:
        yield from _transformers()


def _torch() -> Iterator[Made]:
    for first in (True, False):
        for norm_first in (True, False):
            yield f"nn.TransformerEncoder {first} {norm_first}", lambda f=first, n=norm_first: (  # type: ignore[misc]
                nn.TransformerEncoder(
                    nn.TransformerEncoderLayer(32, 4, 64, batch_first=f, norm_first=n), 2,
                    enable_nested_tensor=False,
                )
            )  # fmt: skip
        yield (
            f"nn.MultiheadAttention {first}",
            lambda f=first: nn.MultiheadAttention(  # type: ignore[misc]
                32, 4, batch_first=f
            ),
        )
    yield "nn.Transformer", lambda: nn.Transformer(32, 4, 2, 2, 64, batch_first=True)


def _x_transformers() -> Iterator[Made]:
    for options in X_OPTIONS:
        for kind in ("Decoder", "Encoder"):
            label = ", ".join(f"{k}={v}" for k, v in options.items())
            yield f"x-transformers {kind} {label}", lambda k=kind, o=options: _x_model(k, o)  # type: ignore[misc]


def _x_model(kind: str, options: dict[str, Any]) -> nn.Module:
    import x_transformers as library

    layers = getattr(library, kind)(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
    return library.TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers)


def _ours() -> Iterator[Made]:
    from clearformer.families import presets

    for name in presets():
        if name.endswith(("small", "tiny", "mini", "masked")):
            yield f"ours {name}", lambda n=name: _our_model(n)  # type: ignore[misc]


def _our_model(name: str) -> nn.Module:
    from clearformer.builder import build
    from clearformer.families import preset

    config, sizes = preset(name), dict(OUR_SIZES)
    if getattr(config, "key_heads", None):
        sizes["key_heads"] = 2
    if getattr(config, "decoder_layers", None):
        sizes["decoder_layers"] = 2
    return build(replace(config, **sizes))


def _transformers() -> Iterator[Made]:
    import audit_transformers

    for kind, name, config_class, model_class in audit_transformers.classes():
        if kind != "encoder-decoder":
            yield (
                name,
                lambda c=config_class, m=model_class: m(  # type: ignore[misc]
                    next(audit_transformers.small_configs(c))
                ),
            )
