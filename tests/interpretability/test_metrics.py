"""Metrics: the numbers of plain torch, also inside an edit, with one sentence for each mistake."""

import pytest
import torch
import torch.nn.functional as F

from clearformer.interpretability import logit_difference, text_loss
from clearformer.interventions import edit, head

TOKENS = torch.tensor([5, 17, 3, 9, 17, 3, 11])


def test_logit_difference_and_loss(gpt2, plain):
    logits = plain(gpt2, TOKENS)
    expected = logits[-1, 4] - logits[-1, 7]
    torch.testing.assert_close(logit_difference(gpt2, TOKENS, 4, 7), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logit_difference(gpt2, TOKENS, 4, position=2), logits[2, 4])
    torch.testing.assert_close(
        text_loss(gpt2, TOKENS), F.cross_entropy(logits[:-1], TOKENS[1:]), atol=1e-4, rtol=1e-4
    )


def test_inside_an_edit_and_with_gradients(gpt2):
    whole = logit_difference(gpt2, TOKENS, 4, 7).detach()
    factor = torch.ones((), requires_grad=True)
    with edit(gpt2, scale={head(1, 2): factor}):
        logit_difference(gpt2, TOKENS, 4, 7).backward()
    with edit(gpt2, zero=head(1, 2)):
        without = logit_difference(gpt2, TOKENS, 4, 7).detach()
    assert abs(float(whole - without)) > 1e-3
    assert float(factor.grad) != 0


def test_the_model_keeps_its_mode(gpt2):
    gpt2.train()
    text_loss(gpt2, TOKENS)
    assert gpt2.training


def test_of_classes(of_family):
    model = of_family("classifier")
    logits = model.module(TOKENS[None] % 13)[0]
    difference = logit_difference(model, TOKENS % 13, 1, 0)
    torch.testing.assert_close(difference, logits[1] - logits[0])
    with pytest.raises(ValueError, match="predicts no next token, so a text has no loss: pass"):
        text_loss(model, TOKENS % 13)


def test_messages(gpt2):
    for arguments, sentence in [
        ((20,), "right is 20, but ids go from 0 to 19"),
        (("a",), "right is a text, but the model has no tokenizer: pass a token id"),
        ((4, 7, 9), "position is 9, but the text has 0 to 6"),
        ((4.5,), "right is 4.5, but it must be a token or its id"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            logit_difference(gpt2, TOKENS, *arguments)


def test_an_answer_is_one_token(gpt2, loaded_characters):
    with pytest.raises(ValueError, match="which is 2 tokens, but it must be one"):
        logit_difference(loaded_characters, "the cat", "at")
    ids = loaded_characters.tokenizer.encode("ab").tolist()
    torch.testing.assert_close(
        logit_difference(loaded_characters, "the cat", "a", "b"),
        logit_difference(loaded_characters, "the cat", *ids),
    )
