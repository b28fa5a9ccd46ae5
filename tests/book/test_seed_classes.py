"""The first seed's printed classes: with the same weights they compute what ours compute."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from clearformer.builder import build
from clearformer.config import Classifier
from clearformer.core.attention import Attention
from clearformer.core.basic import attend, attend_loop
from clearformer.core.block import Block, FeedForward
from clearformer.core.masks import Mask
from clearformer.families import preset

HERE = Path(__file__).parent
PRINTED = sorted((HERE / "printed").glob("*.txt"))
WIDTH, HEADS, DEPTH, LENGTH, TOKENS, CLASSES = 32, 4, 3, 12, 19, 3


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


seed = load(HERE / "seed_classes.py")


def squeezed(text):
    return re.sub(r"\s+", "", text)


def printed(name):
    return (HERE / "printed" / f"{name}.txt").read_text()


def attention_weights(theirs):
    qkv = [theirs.toqueries.weight, theirs.tokeys.weight, theirs.tovalues.weight]
    out = theirs.unifyheads
    return {"project.weight": torch.cat(qkv), "output.weight": out.weight, "output.bias": out.bias}


def block_weights(theirs):
    found = {
        f"attention.{name}": value for name, value in attention_weights(theirs.attention).items()
    }
    up, _, down = theirs.ff
    parts = {
        "attention_norm": theirs.norm1, "feed_forward_norm": theirs.norm2,
        "feed_forward.up": up, "feed_forward.down": down,
    }  # fmt: skip
    for name, part in parts.items():
        found |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    return found


def model_weights(theirs):
    found = {
        "embedding.token.weight": theirs.token_emb.weight,
        "embedding.position.table.weight": theirs.pos_emb.weight,
        "head.project.weight": theirs.toprobs.weight,
        "head.project.bias": theirs.toprobs.bias,
    }
    for place, block in enumerate(theirs.tblocks):
        for name, value in block_weights(block).items():
            found[f"stack.blocks.{place}.{name}"] = value
    return found


def ours(name, theirs, **changes):
    sizes = {"vocabulary": TOKENS, "length": LENGTH, "layers": DEPTH, "width": WIDTH}
    model = build(replace(preset(name), heads=HEADS, hidden=4 * WIDTH, **sizes, **changes))
    model.load_state_dict(model_weights(theirs))  # every weight, and no other
    return model.eval()


def difference(a, b):
    assert a.shape == b.shape
    return float((a - b).detach().abs().max())


def test_corrected_classes_match_printed_ones():
    mended = squeezed((HERE / "seed_classes.py").read_text())
    for name in ("self_attention", "block", "classifier"):
        text = re.sub(r"^(import|from) .*\n", "", printed(name), flags=re.MULTILINE)
        assert squeezed(text) in mended, name
    assert squeezed(seed.MASK) in squeezed(printed("mask"))


def test_basic_self_attention_matches():
    x = torch.randn(2, 7, 5)
    names = {"x": x}
    exec(printed("basic").replace("x = ...", ""), names)
    assert difference(names["y"], attend(x)) <= 1e-6
    assert difference(names["y"], torch.stack([attend_loop(each) for each in x])) <= 1e-6


def test_self_attention_matches():
    theirs, ours = seed.SelfAttention(WIDTH, HEADS), Attention(WIDTH, HEADS, bias=False)
    ours.load_state_dict(attention_weights(theirs))
    x = torch.randn(2, 9, WIDTH)
    assert difference(theirs(x), ours(x, Mask())) <= 1e-6


def test_block_matches():
    theirs = seed.TransformerBlock(WIDTH, HEADS)
    norms = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
    ours = Block(Attention(WIDTH, HEADS, bias=False), FeedForward(WIDTH, 4 * WIDTH), norms)
    ours.load_state_dict(block_weights(theirs))
    x = torch.randn(2, 9, WIDTH)
    assert difference(theirs(x), ours(x, Mask())) <= 1e-6


def test_classifier_matches():
    theirs = seed.Transformer(WIDTH, HEADS, DEPTH, LENGTH, TOKENS, CLASSES)
    model = ours("classifier-imdb", theirs, head=Classifier(classes=CLASSES, pool="mean"))
    tokens = torch.randint(TOKENS, (4, LENGTH))
    assert difference(theirs(tokens), F.log_softmax(model(tokens), dim=-1)) <= 1e-6


def test_generator_matches():
    theirs = seed.Generator(WIDTH, HEADS, DEPTH, LENGTH, TOKENS)
    model = ours("generator-enwik8", theirs)
    tokens = torch.randint(TOKENS, (4, LENGTH))
    assert difference(theirs(tokens), F.log_softmax(model(tokens), dim=-1)) <= 1e-6


@pytest.mark.parametrize("name", ["self_attention", "classifier"])
def test_erratum_12_printed_classes_do_not_compile(name):
    with pytest.raises(IndentationError):  # TabError is one
        compile(printed(name), name, "exec")


def test_erratum_12_other_listings_compile():
    for name in ("basic", "block", "mask"):
        compile(printed(name), name, "exec")


def test_erratum_6_printed_class_ignores_mask():
    """Output 0 of an attention with a causal mask would not change with a later input."""
    torch.manual_seed(1)
    theirs = seed.SelfAttention(WIDTH, HEADS, mask=True)
    x = torch.randn(1, 6, WIDTH)
    later = x.clone()
    later[:, -1] += 1
    assert difference(theirs(x)[:, :1], theirs(later)[:, :1]) > 1e-3


def test_erratum_13_printed_mask_omits_scale():
    assert "**" not in printed("mask")
    assert "/" not in printed("mask")
    assert "dot / (s ** (1/2))" in printed("self_attention")
