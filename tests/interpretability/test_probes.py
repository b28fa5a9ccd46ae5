"""Linear probes: equal to scikit-learn's, and they find what is there."""

import numpy as np
import pytest
import torch

from clearformer.interpretability import linear_probes
from clearformer.interpretability.probes import logistic_regression


def test_equals_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 5, generator=generator)
    targets = (x @ torch.randn(5, 3, generator=generator)).argmax(-1)
    weight, bias = logistic_regression(x, targets, 3, penalty=2.0)
    theirs = linear_model.LogisticRegression(C=0.5, tol=1e-8, max_iter=1000)
    theirs.fit(x.double().numpy(), targets.numpy())
    np.testing.assert_allclose(weight.numpy(), theirs.coef_, atol=2e-3)
    probabilities = (x @ weight.T + bias).softmax(-1)
    np.testing.assert_allclose(probabilities.numpy(), theirs.predict_proba(x.numpy()), atol=1e-3)


def test_the_last_token_is_in_the_embeddings(gpt2):
    generator = torch.Generator().manual_seed(1)
    texts = [torch.randint(20, (6,), generator=generator) for _ in range(60)]
    labels = ["low" if int(text[-1]) < 10 else "high" for text in texts]
    found = linear_probes(gpt2, texts, labels, pool="last", penalty=0.01)
    assert found.labels == ["high", "low"]
    assert len(found.accuracy) == 4
    assert found.tested == 15
    assert found.accuracy[0] > 0.9 > found.majority
    assert found.weights[0].shape == (2, 32)


def test_messages(gpt2):
    text = torch.tensor([1, 2])
    for arguments, options, sentence in [
        (([text] * 4, [0, 1]), {}, "there are 4 texts and 2 labels: pass one each"),
        (([text] * 4, [0] * 4), {}, "4 texts of 1 classes, but a probe needs at least 4"),
        (([text] * 4, [0, 1] * 2), {"pool": "max"}, "pool is 'max', but it must be mean, last"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            linear_probes(gpt2, *arguments, **options)
