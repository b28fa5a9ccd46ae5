"""Training checks: losses, dropout and gradients."""

import pytest
import torch

from clearformer.verification.checks import training as checks


def names(findings):
    return [each.name for each in findings]


def test_correct_models_give_no_finding(probe):
    for source in ("gpt", "rotary", "encoder", "seed_classifier"):
        made = probe(source)
        for check in (
            checks.loss_shift,
            checks.loss_over_batch,
            checks.first_loss,
            checks.dead_parameters,
            checks.dropout_places,
            checks.randomness_in_eval,
            checks.half_precision,
        ):
            assert names(check(made)) == []


def test_losses_by_shift():
    logits, targets = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    found = checks.losses(logits, targets)
    wanted = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).double(), targets[:, 1:].flatten()
    )
    assert found[1] == pytest.approx(float(wanted))
    assert len(set(found.values())) == 3


def test_finds_high_initial_loss(probe):
    (found,) = checks.first_loss(probe("gpt", "self.apply(self.init_weights)", ""))
    assert "ln 50 is 3.91" in found.sentence


def test_finds_dead_parameters(probe):
    (found,) = checks.dead_parameters(probe("gpt", "self.proj(y)", "y"))
    assert found.sentence.startswith("blocks.0.attn.proj.weight")


def test_finds_dropout_in_eval_mode(probe):
    made = probe("rotary", "self.dropout if self.training else 0.0", "0.25")
    (found,) = checks.randomness_in_eval(made)
    assert found.sentence == "dropout of 0.25 is active in eval mode"
