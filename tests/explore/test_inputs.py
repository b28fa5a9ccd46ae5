"""Request inputs become token ids within the limits, or an error."""

import pytest

from clearformer.explore import inputs
from clearformer.explore.limits import Limits
from clearformer.http_server.errors import Problem


def refused(call, *given):
    with pytest.raises(Problem) as problem:
        call(*given)
    return problem.value.status, problem.value.body["error"]


def test_rejects_too_long_text_with_limit(loaded):
    model = loaded("modern")  # bytes and rotary positions: only our own limit counts
    status, error = refused(inputs.input_ids, model, "x" * 513, None, Limits())
    assert status == 413
    assert error["code"] == "too_long"
    assert error["message"] == "513 tokens, limit 512"
    assert error["hint"] == "shorten the text or start with --max-tokens 768"
    assert error["limit"] == 512
    assert len(inputs.input_ids(model, "x" * 513, None, Limits(max_tokens=1024))) == 513
    status, error = refused(inputs.input_ids, loaded("generator"), "a" * 65, None, Limits())
    assert error["message"] == "65 tokens, limit 64"  # learned positions end there
    status, error = refused(inputs.input_ids, model, "x" * 8001, None, Limits())
    assert error["message"] == "8,001 characters, limit 8,000"


def test_rejects_ids_outside_vocabulary(loaded):
    model = loaded("generator")
    assert inputs.input_ids(model, None, [1, 2], Limits()) == [1, 2]
    for ids in ([], [10**6]):
        assert refused(inputs.input_ids, model, None, ids, Limits())[1]["field"] == "tokens"
    for text, ids in ((None, None), ("a", [1])):
        error = refused(inputs.input_ids, model, text, ids, Limits())[1]
        assert error["message"] == "give either text or tokens, and not both"


def test_mask_and_permute_tokens(loaded):
    bert = loaded("bert")
    assert inputs.masked(bert, [5, 6, 7], [1]) == [5, bert.model.tokenizer.mask, 7]
    assert refused(inputs.masked, bert, [5], [3])[1]["message"] == (
        "there is no token 3: there are 1"
    )
    assert refused(inputs.masked, loaded("gpt2"), [5], [0])[0] == 409
    assert inputs.permuted([5, 6, 7], [2, 0, 1]) == [7, 5, 6]
    assert refused(inputs.permuted, [5, 6], [0, 0])[1]["field"] == "permutation"


def test_replacement_must_be_one_token(loaded):
    model = loaded("bert").model
    cat = model.tokenizer.encode("cat").item()
    assert inputs.replacement_token(model, "dog", cat) == model.tokenizer.encode("dog").item()
    error = refused(inputs.replacement_token, model, "cat dog", cat)[1]
    assert error["code"] == "one_token"
    assert "'cat dog' is 2 tokens, but it replaces one" in error["message"]


def test_default_target_is_own_translation(loaded):
    model = loaded("original")
    source = inputs.input_ids(model, "the cat", None, Limits())
    own = inputs.decoder_input_ids(model, source, None, Limits())
    assert own[0] == model.model.generation.start_id
    assert len(own) > 1
    given = inputs.decoder_input_ids(model, source, "a dog", Limits())
    assert model.model.tokenizer.decode(given[1:]) == "a dog"
