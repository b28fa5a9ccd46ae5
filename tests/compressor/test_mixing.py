import numpy as np
import torch

from clearformer.compressor import mixing
from clearformer.compressor.codec import compress, decompress
from clearformer.compressor.mixing import Mixture
from clearformer.compressor.proof import prove
from clearformer.text import BytePairs

UNIFORM = torch.zeros(2, 7)


def test_trained_model_starts_alone():
    mixture = Mixture(3, 2, 7, trained=True)
    logits = torch.randn(2, 7, generator=torch.Generator().manual_seed(0))
    mixed = mixture(np.array([1, 2]), logits)
    torch.testing.assert_close(mixed, logits.double().log_softmax(-1))


def test_weights_take_a_gradient_step():
    """The step is that of autograd on the bits of what followed."""
    mixture, chance = Mixture(2, 2, 7, trained=False), np.random.default_rng(0)
    for _ in range(20):
        mixture(chance.integers(0, 7, 2), UNIFORM)
    mixture.by_confidence[:] = torch.rand(mixture.by_confidence.shape, dtype=torch.float64)
    last = chance.integers(0, 7, 2)
    mixture(last, UNIFORM)
    before = mixture.by_confidence.clone().requires_grad_()
    weights = before[mixture.sets[0]] + mixture.by_token[mixture.sets[1]]
    mixed = torch.einsum("sn,nsv->sv", weights, mixture.logs)
    following = chance.integers(0, 7, 2)
    mixed.log_softmax(-1)[torch.arange(2), torch.from_numpy(following)].sum().backward()
    mixture(following, UNIFORM)
    torch.testing.assert_close(
        mixture.by_confidence, before.detach() + mixing.RATE * before.grad, rtol=1e-12, atol=1e-15
    )


def test_impossible_tokens_of_a_model_are_allowed():
    mixture = Mixture(2, 2, 7, trained=True)
    logits = torch.full((2, 7), -torch.inf)
    logits[:, 3] = 0
    for token in (3, 4, 5):
        assert mixture(np.array([token, token]), logits).isfinite().all()


def test_round_trip_with_counts(byte_model, text, prose):
    data = text[:200] * 3
    pairs = byte_model(tokenizer=BytePairs.train([prose], 280))
    for model, options in ((byte_model(), {}), (byte_model("xl"), {"online": True}), (pairs, {})):
        packed = compress(data, model, streams=2, counts=5, **options)
        assert packed.header.counts == 5
        assert packed.size < compress(data, model, streams=2, **options).size
        assert decompress(packed.data, model) == data


def test_proof_matches_claim_with_counts(byte_model, text):
    for family in ("modern", "xl"):
        proof = prove(byte_model(family), text, streams=3, counts=4)
        assert abs(8 * proof.packed.code_size - proof.claim.bits) < 64
