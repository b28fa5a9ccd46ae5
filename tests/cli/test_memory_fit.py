"""What is said when memory does not suffice; --fit is in test_plan."""

from clearformer.cli.memory_fit import out_of_memory
from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.families import gpt2


def sentence(fits=None, **train):
    return out_of_memory(
        RunConfig(
            model=gpt2(), data=DataConfig(source="x"), train=TrainConfig(lr=1, steps=1, **train)
        ),
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 617558016 bytes.",
        fits,
    )


def test_out_of_memory_names_what_to_change():
    assert sentence(batch=12, accumulate=2).startswith(
        "out of memory (618 MB more were asked for) with 6 sequences of 1024 tokens at a time, 12 "
        "layers of width 768: use --accumulate 3 (the same gradient in 3 parts), or --recompute 1 "
    )
    assert "a shorter --length than 1024" in sentence(batch=1)
    assert "--recompute" not in sentence(batch=1, recompute=1)
    assert "clearformer plan" in sentence(batch=1)


def test_what_was_tried_is_named():
    assert "--accumulate 6 (the same gradient; 2 at a time fit)" in sentence(6, batch=12)
    assert "(not even one sequence fits)" in sentence(0, batch=12)
