"""watch: the attention of modules that nobody here wrote, equal to what they report themselves."""

import hashlib
import threading

import pytest
import torch
from torch import nn

import clearformer as cf
from clearformer.interpretability.watch import batched

IDS = torch.tensor([[5, 17, 3, 9, 40, 3, 11], [6, 18, 4, 9, 41, 3, 12]])


def hf(name, implementation, **settings):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(
        vocab_size=100, bos_token_id=0, eos_token_id=0, pad_token_id=0, **settings
    )
    config._attn_implementation = implementation
    kind = {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}.get(name, f"{name}Model")
    torch.manual_seed(0)
    return getattr(transformers, kind)(config).eval()


SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
MODULES = {
    "GPT2": {"n_layer": 2, "n_head": 4, "n_embd": 32},
    "Bert": {**SMALL, "intermediate_size": 64},
    "Llama": {**SMALL, "num_key_value_heads": 2, "intermediate_size": 64},
}


def fingerprint(module):
    found = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        found.update(name.encode() + tensor.numpy().tobytes())
    for name, part in module.named_modules():
        found.update(f"{name} {len(part._forward_hooks)} {sorted(vars(part))}".encode())
    return found.hexdigest()


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_hugging_face_models(name, implementation):
    module = hf(name, implementation, **MODULES[name])
    reporting = hf(name, "eager", **MODULES[name])
    before = fingerprint(module)
    with torch.no_grad():
        expected = module(input_ids=IDS)[0]
        with cf.watch(module) as seen:
            got = module(input_ids=IDS)[0]
        theirs = reporting(input_ids=IDS, output_attentions=True).attentions
    assert torch.equal(got, expected)
    assert fingerprint(module) == before
    assert len(seen.attention) == 2
    for found, weights in zip(seen.attention, theirs, strict=True):
        assert found.fused == (implementation == "sdpa")
        torch.testing.assert_close(found.weights, weights, atol=1e-5, rtol=1e-4)
    assert seen.attention[0].name in dict(module.named_modules())


def test_an_encoder_decoder_of_hugging_face():
    settings = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "encoder_ffn_dim": 64,
                "decoder_ffn_dim": 64, "encoder_attention_heads": 4,
                "decoder_attention_heads": 4}  # fmt: skip
    module = hf("Bart", "sdpa", **settings)
    with torch.no_grad(), cf.watch(module) as seen:
        module(input_ids=IDS, decoder_input_ids=IDS[:, :5])
    shapes = [tuple(each.weights.shape) for each in seen.attention]
    assert shapes == [(2, 4, 7, 7), (2, 4, 5, 5), (2, 4, 5, 7)]
    assert "encoder_attn" in seen.attention[2].name


def test_torchs_own_modules():
    torch.manual_seed(0)
    x = torch.randn(2, 7, 32)
    module = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    seen = cf.watch(module)
    _, weights = seen(x, x, x, average_attn_weights=False)
    assert torch.equal(seen.weights(0), weights)
    layer = nn.TransformerEncoderLayer(32, 4, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        fast = encoder(x)
        with cf.watch(encoder) as seen:
            plain = encoder(x)
        _, expected = encoder.layers[0].self_attn(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(plain, fast, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(seen.weights(0), expected, atol=1e-5, rtol=1e-4)
    assert torch.backends.mha.get_fastpath_enabled()


def test_x_transformers():
    pytest.importorskip("x_transformers")
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4)
    module = TransformerWrapper(num_tokens=100, max_seq_len=32, attn_layers=layers).eval()
    with torch.no_grad():
        with cf.watch(module) as seen:
            got = module(IDS)
        assert torch.equal(got, module(IDS))
    assert [tuple(each.weights.shape) for each in seen.attention] == [(2, 4, 7, 7)] * 2
    assert seen.weights(0).triu(1).abs().max() == 0


class Own(nn.Module):
    """One head, written out."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5
        return scores.softmax(-1) @ self.v(x)


def test_ones_own_module_inputs_and_outputs():
    module, x = Own(), torch.randn(1, 5, 8)
    with cf.watch(module) as seen:
        y = module(x)
    expected = (module.q(x) @ module.k(x).transpose(1, 2) / 8**0.5).softmax(-1)
    torch.testing.assert_close(seen.weights(0, 0), expected)
    assert torch.equal(seen.outputs[""], y)
    assert torch.equal(seen.inputs["q"], x)
    torch.testing.assert_close(seen.outputs["q"], module.q(x))
    torch.testing.assert_close(seen.attention[0].output, y)
    assert "test_watch.py" in seen.attention[0].line
    y.sum().backward()
    assert module.q.weight.grad is not None


def test_left_as_it_was_after_an_error():
    module = Own()
    before = fingerprint(module)
    with pytest.raises(RuntimeError), cf.watch(module):
        module(torch.randn(1, 5, 3))
    assert fingerprint(module) == before
    assert torch.backends.mha.get_fastpath_enabled()


class InPlace(nn.Module):
    """Writes over its input, its queries, its mask and its weights after their use."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x):
        hidden = self.up(x)
        self.before = hidden.clone()
        q = self.activation(hidden) * 1
        mask = torch.ones(5, 5, dtype=torch.bool).tril()
        fused = nn.functional.scaled_dot_product_attention(q, q, q, mask)
        weights = (q @ q.transpose(1, 2) / 8**0.5).masked_fill(~mask, -torch.inf).softmax(-1)
        self.weights = weights.clone()
        y = fused + weights @ q
        for each in (q, mask, weights):
            each.zero_()
        return y


def test_what_is_written_in_place_later_changes_no_record():
    module, x = InPlace(), torch.randn(2, 5, 8)
    with torch.no_grad(), cf.watch(module) as seen:
        module(x)
    assert torch.equal(seen.outputs["up"], module.before)
    assert torch.equal(seen.inputs["activation"], module.before)
    assert torch.equal(seen.outputs["activation"], module.before.relu())
    assert torch.equal(seen.weights(1, 0), module.weights)
    torch.testing.assert_close(seen.weights(0, 0), module.weights)
    assert torch.equal(seen.attention[0].q, module.before.relu())


@pytest.mark.parametrize("axes", ["bhqk", "bqhk", "qkbh", "hbqk", "bhkq"])
def test_axes_in_any_order(axes):
    """An einsum may have them in any order; the record is (B, H, Q, K)."""
    q, k, v = torch.randn(3, 2, 5, 3, 4).unbind(0)

    class Summed(nn.Module):
        def forward(self, q):
            scores = torch.einsum(f"bqhd,bkhd->{axes}", q, k)
            return torch.einsum(f"{axes},bkhd->bqhd", scores.softmax(axes.index("k")), v)

    seen = cf.watch(Summed())
    seen(q)
    expected = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)
    torch.testing.assert_close(seen.weights(0), expected)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_heads_folded_into_the_batch(heads):
    """The module's input says how many sequences there are, whatever its attributes say."""

    class Folded(nn.Module):
        num_heads = 4  # false for two of the three

        def forward(self, x):
            split = x.view(4, 5, heads, -1).transpose(1, 2).flatten(0, 1)
            weights = split.bmm(split.transpose(1, 2)).softmax(-1)
            return weights.bmm(split).view(4, heads, 5, -1).transpose(1, 2).flatten(2)

    x = torch.randn(4, 5, 8)
    seen = cf.watch(Folded())
    seen(x)
    split = x.view(4, 5, heads, -1).transpose(1, 2)
    torch.testing.assert_close(seen.weights(0), (split @ split.mT).softmax(-1))


class Talking(nn.Module):
    """Heads that are mixed before and after the softmax."""

    def __init__(self, mix):
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 3))
        self.linear, self.convolution = nn.Linear(3, 3), nn.Conv2d(3, 3, 1)
        self.mix = mix

    def forward(self, x):
        heads = x.view(2, 5, 3, 4).transpose(1, 2)
        mixed = self.mix(self, (heads @ heads.mT).clamp(max=9))
        self.weights = self.mix(self, torch.max(mixed, torch.tensor(-9.0)).softmax(-1))
        return self.weights @ heads


MIXES = {
    "einsum": lambda own, x: torch.einsum("bhqk,hg->bgqk", x, own.table),
    "product": lambda own, x: (x.permute(0, 2, 3, 1) @ own.table).permute(0, 3, 1, 2),
    "linear": lambda own, x: own.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
    "convolution": lambda own, x: own.convolution(x),
    "none": lambda own, x: x,
}


@pytest.mark.parametrize("mix", MIXES)
def test_talking_heads(mix):
    """The weights that meet the values; the queries are those of the first product."""
    module, x = Talking(MIXES[mix]), torch.randn(2, 5, 12)
    seen = cf.watch(module)
    seen(x)
    assert torch.equal(seen.weights(0), module.weights)
    assert torch.equal(seen.attention[0].q, x.view(2, 5, 3, 4).transpose(1, 2))


def test_grouped_heads_of_an_einsum():
    q, k = torch.randn(2, 5, 2, 3, 4), torch.randn(2, 5, 2, 4)

    class Grouped(nn.Module):
        def forward(self, x):
            weights = torch.einsum("bqgrd,bkgd->bgrqk", q, k).softmax(-1)
            return torch.einsum("bgrqk,bkgd->bqgrd", weights, k)

    seen = cf.watch(Grouped())
    seen(q.flatten(2))
    expected = torch.einsum("bqgrd,bkgd->bgrqk", q, k).softmax(-1).flatten(1, 2)
    torch.testing.assert_close(seen.weights(0), expected)


def test_other_modules_that_run_meanwhile_are_not_recorded():
    module, other, x = Own(), Own(), torch.randn(1, 5, 8)
    with cf.watch(module) as seen, cf.watch(other) as theirs:
        other(x)
        module(x)
        thread = threading.Thread(target=module, args=(torch.randn(1, 3, 8),))
        thread.start()
        thread.join()
    expected = (module.q(x) @ module.k(x).transpose(1, 2) / 8**0.5).softmax(-1)
    assert (len(seen.attention), len(theirs.attention)) == (1, 1)
    torch.testing.assert_close(seen.weights(0, 0), expected)
    assert not torch.equal(theirs.weights(0), seen.weights(0))


def test_a_compiled_module():
    module, x = Own(), torch.randn(1, 5, 8)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    seen = cf.watch(compiled)
    torch.testing.assert_close(seen(x), module(x))
    expected = (module.q(x) @ module.k(x).transpose(1, 2) / 8**0.5).softmax(-1)
    torch.testing.assert_close(seen.weights(0, 0), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused():
    with pytest.raises(ValueError, match="0 is TorchScript, whose operations cannot be seen"):
        cf.watch(nn.Sequential(torch.jit.script(nn.Linear(2, 2))))


def test_folded_axes():
    table = torch.rand(6, 3, 4)
    assert batched(table, 2).shape == (3, 2, 3, 4)
    assert batched(table, None).shape == (6, 1, 3, 4)
    assert batched(table[0], None).shape == (1, 1, 3, 4)
    assert batched(table.view(3, 2, 1, 3, 4), 1).shape == (6, 1, 3, 4)


def test_messages():
    with pytest.raises(ValueError, match="but got a str: pass the module itself"):
        cf.watch("gpt2")
    with cf.watch(nn.Linear(2, 2)) as seen:
        seen.module(torch.ones(1, 2))
    with pytest.raises(ValueError, match="no attention was recorded: call the module inside"):
        seen.weights(0)
    seen = cf.watch(Own())
    seen(torch.randn(1, 3, 8))
    with pytest.raises(ValueError, match="index is 4, but there are attentions 0 to 0"):
        seen.weights(4)
    with pytest.raises(ValueError, match="head is 4, but there are heads 0 to 0"):
        seen.weights(0, 4)
    with seen, pytest.raises(ValueError, match="this watch is running already"):
        seen.__enter__()
