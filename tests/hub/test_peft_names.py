import clearformer as cf
from clearformer.hub.peft_names import peft_modules


def test_one_of_our_matrices_may_be_several_of_theirs():
    _, modules = peft_modules(cf.families.modern("tiny"))
    names = [module.name for module in modules[:7]]
    assert names == [
        f"model.layers.0.{each}"
        for each in (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
        )
    ]  # fmt: skip
    assert modules[1].parameter == "stack.blocks.0.attention.project.parts.k"


def test_one_of_theirs_may_be_the_whole_of_ours():
    _, modules = peft_modules(cf.families.gpt2("small"))
    assert [module.part for module in modules[:4]] == ["qkv", "o", "up", "down"]
    assert all(module.transposed for module in modules)
