"""Saved, exported, quantized and optimized models."""

from dataclasses import replace

import pytest
import torch

import clearformer as cf
from clearformer.config import GenerationDefaults


def test_optimized_models_generate_same_text(runs, generator):
    asked = (["12 bottles", "7"], {"max_tokens": 8, "temperature": 0})
    plain = generator.generate(asked[0], **asked[1])
    for model in (cf.load(runs / "generator").optimize(), cf.load(runs / "generator").optimize(2)):
        assert model.generate(asked[0], **asked[1]) == plain
    eager = cf.load(runs / "generator").compile(backend="eager")
    assert eager.generate(asked[0], **asked[1]) == plain
    int8 = cf.load(runs / "generator", weights="int8")
    assert len(int8.generate("12 b", max_tokens=5).encode()) >= 5


def test_rejects_saving_quantized_or_packed_model(runs, tmp_path):
    for model, why in (
        (cf.load(runs / "generator", weights="int8"), "was quantized"),
        (cf.load(runs / "generator", weights="int4"), "was quantized"),
        (cf.load(runs / "generator").optimize(4), "was packed by optimize"),
    ):
        for write in (model.save, model.export):
            with pytest.raises(ValueError, match=f"{why}, so its weights cannot be written"):
                write(tmp_path / "out")
        assert model.parameter_count == cf.load(runs / "generator").parameter_count
    assert not (tmp_path / "out").exists()
    half = cf.load(runs / "generator", dtype="bfloat16")
    assert half.export(tmp_path / "theirs").difference < 1e-5
    again = cf.load(half.save(tmp_path / "half"))
    assert next(again.module.parameters()).dtype == torch.float32
    with pytest.raises(ValueError, match="`batch_size` is 0, but it must be at least 1"):
        half.optimize(0)


def test_saved_and_exported_models_generate_same_text(generator, tmp_path):
    text = generator.generate("12 b", max_tokens=8)
    saved = cf.load(generator.save(tmp_path / "saved"))
    assert saved.generate("12 b", max_tokens=8) == text
    assert saved.run_config == generator.run_config
    with pytest.raises(ValueError, match="saved already exists"):
        generator.save(tmp_path / "saved")
    file = generator.export(tmp_path / "one.safetensors", to="safetensors").path
    assert cf.load(file).generate("12 b", max_tokens=8) == text
    folder = generator.export(tmp_path / "theirs").path
    assert cf.load(folder).generate("12 b", max_tokens=8) == text
    int8 = generator.export(tmp_path / "int8", to="int8").path
    with pytest.raises(ValueError, match="has weights in int8: make int4 of the run that it was"):
        cf.load(int8, weights="int4")
    with pytest.raises(ValueError, match="has int8 weights, which are for inference"):
        cf.load(int8).save(tmp_path / "again")
    with pytest.raises(ValueError, match="`to` is 'onnx', but it must be one of huggingface"):
        generator.export(tmp_path / "x", to="onnx")


def test_start_and_end_tokens_are_kept(runs, generator, tmp_path):
    end_id = generator.completions([[49, 50]], max_tokens=1, temperature=0)[0].tokens[0].id
    generation = GenerationDefaults(end_ids=(end_id,))
    run_config = replace(generator.run_config, generation=generation)
    ending = cf.Model(
        generator.module, generator.config, generator.tokenizer, run_config=run_config
    )
    translator = cf.load(runs / "translator")
    assert translator.run_config.generation.target_ids is not None
    for model in (ending, translator):
        name = model.config.family
        paths = [
            model.save(tmp_path / f"{name}-saved"),
            model.export(tmp_path / f"{name}.safetensors", to="safetensors").path,
        ]
        for path in paths:
            assert cf.load(path).run_config.generation == model.run_config.generation
    folder = ending.export(tmp_path / "theirs").path
    assert cf.load(folder).run_config.generation == generation
    for model in (ending, cf.load(folder), cf.load(tmp_path / "modern.safetensors")):
        assert model.generate([49, 50], max_tokens=9, temperature=0) == []
    expected = translator.translate("one 3")
    assert cf.load(tmp_path / "original.safetensors").translate("one 3") == expected
