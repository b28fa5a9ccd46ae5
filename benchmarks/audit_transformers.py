"""Verify every causal, masked and encoder-decoder class of transformers that can be built tiny.

    python benchmarks/audit_transformers.py [--out audit.json] [NAME ...]

No class is known to be good or bad: each is shrunk by the names of its
settings, built with random weights and checked. Each runs in its own process, with a time limit.
"""

import argparse
import copy
import json
import multiprocessing
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

SECONDS = 90
MAX_PARAMETERS = 20_000_000
# A setting by its name, and what it becomes.
WIDTHS = (
    "hidden_size",
    "d_model",
    "n_embd",
    "dim",
    "embed_dim",
    "emb_dim",
    "embedding_size",
    "word_embed_proj_dim",
    "hidden_dim",
    "embed_size",
    "d_embed",
    "rescale_every",
    "attention_hidden_size",
    "d_inner_model",
    "out_hidden_size",
    "conv_dim",
)
LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "n_layers",
    "num_decoder_layers",
    "num_encoder_layers",
    "num_blocks",
    "num_mem_blocks",
)
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
)
HIDDEN = (
    "intermediate_size",
    "d_ff",
    "n_inner",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "ffn_dim",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "d_inner",
    "ffn_hidden_size",
    "mlp_hidden_size",
    "intermediate_dim",
    "expert_ffn_hidden_size",
)
OTHERS = {
    "vocab_size": 96,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "n_ctx": 64,
    "num_key_value_heads": 2,
    "multi_query_group_num": 2,
    "head_dim": 8,
    "kv_channels": 8,
    "d_kv": 8,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 3,
    "decoder_start_token_id": 1,
    "max_seq_len": 64,
    "max_target_positions": 64,
    "max_source_positions": 64,
    "vocab_size_per_layer_input": 96,
    "hidden_size_per_layer_input": 8,
    "d_head": 8,
    "mask_token_id": 4,
    "forced_eos_token_id": None,
    "forced_bos_token_id": None,
    "num_key_value_groups": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "attention_window": 4,
    "image_size": 16,
    "patch_size": 8,
    "type_vocab_size": 2,
    "n_shared_experts": 1,
    "rotary_dim": 8,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "num_shared_experts": 1,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "expert_layer_period": 2,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
}


def shrink(config: Any) -> None:
    """Make every part of a config small, by the names of its settings."""
    for name in list(vars(config)) + [n for n in dir(type(config)) if not n.startswith("_")]:
        try:
            value = getattr(config, name)
        except Exception:
            continue
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            shrink(value)
        elif isinstance(value, int | None) and not isinstance(value, bool):
            _set(config, name, value)
        elif isinstance(value, list) and name in (
            "layer_types",
            "mlp_layer_types",
            "layers_block_type",
        ):
            _try(
                config,
                name,
                value[:2]
                if len(set(value[:2])) == len(set(value))
                else [*dict.fromkeys(value)][:2]
                if len(set(value)) > 1
                else value[:2],
            )
        elif isinstance(value, list) and name == "attention_window":
            _try(config, name, [4, 4])


def small_values(config: Any) -> dict[str, Any]:
    """The settings of a config that are to be small, for its constructor."""
    table: dict[str, int | None] = {
        **dict.fromkeys(WIDTHS, 32),
        **dict.fromkeys(LAYERS, 2),
        **dict.fromkeys(HEADS, 4),
    }
    table |= {**dict.fromkeys(HIDDEN, 48), **OTHERS}
    found: dict[str, Any] = {}
    for name in {*vars(config), *(n for n in dir(type(config)) if not n.startswith("_"))}:
        try:
            value = getattr(config, name)
        except Exception:
            continue
        number = isinstance(value, int) and not isinstance(value, bool)
        if name in table and (number or (value is None and name == "pad_token_id")):
            found[name] = table[name]
    return found


def small_configs(config_class: Any) -> Iterator[Any]:
    """Small configs: by the constructor, with and without a head width, or by setting values."""
    default = config_class()
    values = small_values(default)
    if not any(hasattr(value, "model_type") for value in vars(default).values()):
        plain = {k: v for k, v in values.items() if k != "head_dim"}
        for given in (values, {**values, "head_dim": 8}, plain):
            try:
                yield config_class(**given)
            except Exception:
                continue
    shrink(default)
    yield default


def _set(config: Any, name: str, value: int | None) -> None:
    small = small_values(config)
    if name in small:
        _try(config, name, small[name])


def _try(config: Any, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except Exception:
        return


def classes() -> Iterator[tuple[str, str, Any, Any]]:
    """(kind, name, config class, model class) of each text model."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    tables = (
        ("causal", auto.MODEL_FOR_CAUSAL_LM_MAPPING),
        ("masked", auto.MODEL_FOR_MASKED_LM_MAPPING),
        ("encoder-decoder", auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING),
    )
    transformers.logging.set_verbosity_error()
    for kind, table in tables:
        for config_class in table:
            found = table[config_class]
            for model_class in found if isinstance(found, tuple) else (found,):
                yield kind, model_class.__name__, config_class, model_class


def audit(kind: str, name: str, config_class: Any, model_class: Any) -> dict[str, Any]:
    """The outcome for one class: findings, or why it could not be checked."""
    outcome: dict[str, Any] = {"kind": kind, "name": name, "config": config_class.__name__}
    failed: dict[str, Any] = {"not_built": "no small config can be made"}
    try:
        for config in small_configs(config_class):
            found = _audit_one(kind, config, model_class)
            if "report" in found:
                return {**outcome, **found}
            failed = found
    except Exception as problem:
        failed = {"not_built": f"{type(problem).__name__}: {str(problem)[:160]}"}
    return {**outcome, **failed}


def _audit_one(kind: str, config: Any, model_class: Any) -> dict[str, Any]:
    import torch

    from clearformer.verification.check import verify
    from clearformer.verification.formats import report_json

    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        if kind == "causal" and hasattr(config, "is_decoder"):
            config.is_decoder = True
        with torch.device("meta"):
            size = sum(each.numel() for each in model_class(copy.deepcopy(config)).parameters())
        if size > MAX_PARAMETERS:
            return {"not_built": f"{size:,} parameters are left after shrinking"}
        model = model_class(config)
    except Exception as problem:
        return {"not_built": f"{type(problem).__name__}: {str(problem)[:160]}"}
    try:
        return {"parameters": size, "report": report_json(verify(model))}
    except Exception as problem:
        return {"not_called": f"{type(problem).__name__}: {str(problem)[:300]}"}


def _work(number: int, queue: Any) -> None:
    warnings.simplefilter("ignore")
    queue.put(audit(*list(classes())[number]))


def audit_all(names: list[str]) -> Iterator[dict[str, Any]]:
    """One process for each class, with a limit of time."""
    context = multiprocessing.get_context("fork")
    for number, (kind, name, config_class, _) in enumerate(list(classes())):
        if names and name not in names:
            continue
        queue = context.Queue()
        worker = context.Process(target=_work, args=(number, queue))
        worker.start()
        try:
            yield queue.get(timeout=SECONDS)
        except Empty:
            yield {
                "kind": kind,
                "name": name,
                "config": config_class.__name__,
                "not_called": f"more than {SECONDS} s",
            }
        worker.terminate()
        worker.join()


def line(outcome: dict[str, Any]) -> str:
    """One line for one class."""
    head = f"{outcome['kind']:16} {outcome['name']:46}"
    if "report" not in outcome:
        return f"{head} {outcome.get('not_built') or outcome.get('not_called')}"
    found = outcome["report"]["findings"]
    problems = [each["name"] for each in found if each["severity"] != "info"]
    notes = [each["name"] for each in found if each["severity"] == "info"]
    said = ", ".join(problems) or "-"
    return f"{head} {outcome['report']['seconds']:5.1f} s  {said}" + (
        f"  ({', '.join(notes)})" if notes else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    start, outcomes = time.perf_counter(), []
    for outcome in audit_all(options.names):
        outcomes.append(outcome)
        print(line(outcome), flush=True)
    looked_at = [each for each in outcomes if "report" in each]
    alarms = [
        each
        for each in looked_at
        if any(f["severity"] != "info" for f in each["report"]["findings"])
    ]
    print(
        f"{len(outcomes)} classes, {len(looked_at)} looked at, {len(alarms)} with errors or "
        f"warnings, {(time.perf_counter() - start) / 60:.1f} minutes"
    )
    if options.out is not None:
        options.out.write_text(json.dumps(outcomes, indent=1))


if __name__ == "__main__":
    main()
