"""Loading a trained model from a run, a checkpoint of another library, or an adapter."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from clearformer.arguments import Weights, as_path, check_keywords, require_choice
from clearformer.inference.weights import WEIGHTS
from clearformer.model.base import as_device, as_dtype
from clearformer.model.model import Model
from clearformer.runs.load import is_peft, is_run, open_any


@check_keywords
def load(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    weights: Weights = "float32",
    tokenizer: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    allow_bin: bool = False,
) -> Model:
    """Load a trained model from a folder or a file.

    Nothing is downloaded, and no code in a checkpoint is run.

    Args:
        path (path): A run (what ``out`` named in training), one of its checkpoints, a Hugging
            Face folder (GPT-2, BERT, Llama, Mistral, Qwen2, Qwen3, Marian), a ``.safetensors``
            file that `Model.export` wrote, a ``.gguf`` file, or with `base` an adapter of PEFT.
        device (str or torch.device): ``"cpu"``, ``"cuda"``, ``"mps"``, or ``"auto"`` for the
            fastest available. Default: ``"cpu"``.
        dtype (str or torch.dtype, optional): Data type of the weights, such as ``"bfloat16"``.
            Default: ``"float32"``, as they are saved.
        weights (str): ``"int8"`` or ``"int4"`` quantizes the weights: smaller and faster on a
            CPU, less accurate, and not trainable. Default: ``"float32"``.
        tokenizer (path, optional): Another folder to take the tokenizer of a Hugging Face model
            from, or ``"bytes"``. Default: its own.
        base (path, optional): The run that an adapter was trained for. Default: where it was then.
        allow_bin (bool): Also read pickled ``.bin`` and ``.pt`` files; only the tensors in them.
            Default: False.

    Returns:
        Model: The model, in evaluation mode.

    Raises:
        ValueError: If there is no such model, or it is damaged or not supported.

    Example:
        >>> import clearformer as cf
        >>> model = cf.load("runs/mine")  # doctest: +SKIP
        >>> model.generate("Once upon", max_tokens=100)  # doctest: +SKIP
    """
    place, target, kind = as_path("path", path), as_device(device), as_dtype(dtype)
    require_choice("weights", weights, WEIGHTS)
    if weights != "float32" and kind not in (None, torch.float32):
        raise ValueError(f"`weights` is {weights}, but `dtype` is {dtype}: leave one of them out")
    if weights == "int4" and target.type != "cpu":
        raise ValueError(
            f"`weights` is int4, which needs a CPU, but `device` is {target.type}: choose int8, or "
            "`dtype` bfloat16"
        )
    if tokenizer is not None and is_run(place):
        raise ValueError(f"{path} is a run, which has its own tokenizer: leave `tokenizer` out")
    under = None if base is None else as_path("base", base)
    if is_run(place):
        model = _load_run(place, under)
    elif is_peft(place):
        model = _load_peft(place, under)
    elif under is not None:
        raise ValueError(f"{path} is not an adapter: leave `base` out")
    else:
        model = _load_checkpoint(place, tokenizer, allow_bin)
    if weights != "float32":
        model.quantize(weights)
    return model.to(target, kind)


@check_keywords
def merge(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
) -> Model:
    """Write the model that an adapter and its base make together as a run of its own.

    Args:
        path (path): A run that was trained with ``adapter=``, or one of its checkpoints.
        out (path): A folder that does not exist yet, or is empty.
        base (path, optional): Where the base is, if it was moved. Default: where it was then.

    Returns:
        Model: The merged model.

    Example:
        >>> import clearformer as cf
        >>> cf.merge("runs/talk", "runs/merged")  # doctest: +SKIP
    """
    model = load(path, base=base)
    if model.run_config.train.adapter is None:
        raise ValueError(f"{path} has no adapter, so there is nothing to merge: use it as it is")
    return load(model.save(out))


def _load_run(path: Path, base: Path | None = None) -> Model:
    notes: list[str] = []
    opened = open_any(path, say=notes.append, base=base)
    if base is not None and opened.config.train.adapter is None:
        raise ValueError(f"{path} is not an adapter: leave `base` out")
    return Model(
        opened.model,
        opened.config.model,
        opened.tokenizer,
        run_config=opened.config,
        path=path,
        checkpoint=opened.checkpoint,
        notes=tuple(notes),
    )


def _load_peft(path: Path, base: Path | None) -> Model:
    from clearformer.hub.peft_import import import_peft

    if base is None:
        raise ValueError(
            f"{path} is an adapter of PEFT, without the model that it was trained for: give the "
            f"run of that model as `base`"
        )
    found = import_peft(path, base)
    return Model(
        found.model(), found.config.model, found.tokenizer, run_config=found.config, path=path,
        notes=found.notes,
    )  # fmt: skip


def _load_checkpoint(path: Path, tokenizer: object, allow_bin: bool) -> Model:
    from clearformer.hub.importing import import_checkpoint

    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"there is no folder or file {path}: give a run (what --out named in clearformer "
            f"train), a Hugging Face folder, or an exported .safetensors or .gguf file"
        ) from None
    except (OSError, ValueError) as problem:  # a name that no file can have
        raise ValueError(f"{str(path)[:100]!r} cannot be opened: {problem.args[-1]}") from None
    if path.is_dir() and not (path / "config.json").exists():
        raise ValueError(
            f"{path} is not a run and not a Hugging Face folder: it has neither checkpoints nor a "
            f"config.json. Give what --out named in clearformer train"
        )
    named = None if tokenizer is None else str(as_path("tokenizer", tokenizer))
    imported = import_checkpoint(path, tokenizer=named, allow_bin=allow_bin)
    from clearformer.hub.write_run import default_run_config

    return Model(
        imported.model(),
        imported.config,
        imported.tokenizer,
        run_config=default_run_config(imported.config, imported.generation, imported.tokenizer),
        path=path,
        notes=imported.notes,
    )
