"""Reproductions: the saved test fails with the bug and passes without it, in plain torch."""

import re
import types

import pytest
import torch

from clearformer.verification.check import verify
from clearformer.verification.formats import as_test

CASES = [  # bug, source, old text, new text
    ("future-leak", "gpt", "torch.tril(torch.ones(block_size, block_size))", "torch.tril(torch.ones(block_size, block_size), diagonal=1)"),
    ("future-leak", "seed_masked", "offset=1", "offset=2"),
    ("future-leak", "torch_lm", ".triu(1)", ".triu(2)"),
    ("future-leak", "translator", "x = layer(x, memory, src_mask, tgt_mask)", "x = layer(x, memory, src_mask, None)"),
    ("future-leak-through-pooling", "gpt", "logits = self.head(self.ln_f(x))", "logits = self.head(self.ln_f(x + x.mean(dim=1, keepdim=True)))"),
    ("mask-lost-on-slow-path", "rotary", "attn_mask=mask, dropout_p=p)", "attn_mask=None if p else mask, dropout_p=p)"),
    ("batch-coupling", "gpt", "x = x + self.mlp(self.ln_2(x))", "x = x + self.mlp(self.ln_2(x)) - x.mean(0)"),
    ("padding-leak-right", "encoder", "hidden = key_padding_mask.", "hidden = (key_padding_mask & key_padding_mask.roll(1, 1)).roll(-1, 1)."),
    ("mask-ignored", "encoder", "if key_padding_mask is not None:", "if False:"),
    ("dropout-in-eval", "gpt", "att = self.attn_dropout(att)", "att = F.dropout(att, 0.1)"),
    ("eval-nondeterministic", "seed", "return self.unifyheads(out)", "return self.unifyheads(out + torch.rand_like(out))"),
    ("dead-parameters", "gpt", "return self.resid_dropout(self.proj(y))", "return self.resid_dropout(y)"),
    ("loss-shifted-twice", "gpt", "logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1", "logits[:, :-2].reshape(-1, logits.size(-1)), targets[:, 2:].reshape(-1), ignore_index=-1"),
    ("cache-differs", "rotary", "v = torch.cat((past[1], v), dim=2)", "v = torch.cat((past[1].roll(1, 2), v), dim=2)"),
    ("positions-not-offset-in-cache", "rotary", "[:, -T:]\n        causal", "[:, :T]\n        causal"),
    ("cache-shared-between-rows", "rotary", "k = torch.cat((past[0], k), dim=2)", "k = torch.cat((past[0][:1].expand_as(past[0]), k), dim=2)"),
]  # fmt: skip


def run_with(text, model):
    """Run a saved test with `model` in the place of the one that it builds."""
    module = types.ModuleType("saved")
    text = re.sub(r"model = .*# build your model here", "model = given", text)
    module.given = model
    exec(compile(text, "saved", "exec"), vars(module))
    with torch.random.fork_rng(devices=[]):
        next(value for name, value in vars(module).items() if name.startswith("test_"))()


@pytest.mark.parametrize(("bug", "source", "old", "new"), CASES)
def test_a_saved_test_fails_with_the_bug_and_passes_without(planted, bug, source, old, new):
    report = verify(planted(source, old, new))
    found = next(each for each in report.findings if each.name == bug)
    text = as_test(found, "Model")
    assert "clearformer" not in text
    with pytest.raises(AssertionError):
        run_with(text, planted(source, old, new))
    run_with(text, planted(source))


def test_a_saved_test_imports_the_class_of_a_file(tmp_path, planted):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n\nclass CausalMixer(torch.nn.Module):\n"
        "    def __init__(self, width):\n        super().__init__()\n"
        "        self.mix = torch.nn.Linear(width, width)\n"
        "    def forward(self, x):\n        return self.mix(x) + x.mean(1, keepdim=True)\n"
    )
    report = verify(f"{file}:CausalMixer(16)")
    (found,) = [each for each in report.problems if each.name.startswith("future-leak")]
    text = as_test(found, report.target)
    assert f"sys.path.insert(0, {str(tmp_path)!r})\nfrom mine import CausalMixer" in text
    assert "model = CausalMixer(16)" in text


def test_bugs_that_only_operations_show_call_verify(planted):
    report = verify(planted("gpt", "* (1.0 / math.sqrt(k.size(-1)))", ""))
    text = as_test(report.problems[0], "m.py:M")
    assert "verify('m.py:M', only=['scale-missing'], seed=0)" in text
