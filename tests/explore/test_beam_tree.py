"""The tree of a model's beam search: its scores by plain forward passes, its texts by the verbs."""

import pytest

import clearformer as cf
from clearformer.explore import beam_tree as module
from clearformer.explore.limits import Limits
from clearformer.explore.requests import BeamsRequest
from clearformer.explore.responses import BeamsResponse
from clearformer.explore.trace import trace
from clearformer.explore.traced_model import encode, encode_source
from clearformer.interpretability import beam_tree

TEXT = "the cat sat"


@pytest.mark.parametrize("kind", ["gpt2", "modern", "original", "sparse", "xl"])
def test_totals_are_those_of_forward_passes(loaded, kind):
    model = loaded(kind).model
    tree = beam_tree(model, TEXT, beam=3, max_tokens=4)
    assert {"kept", "pruned", "finished"} <= {node.fate for node in tree.nodes}
    chosen = [n for n in tree.nodes if n.rank is not None] + tree.nodes[4:8]
    for node in chosen:
        path = list(tree.tokens(node))
        if kind == "original":
            start = model.generation.target_ids[0]
            logits = trace(model, (encode_source(model, TEXT), [start, *path[:-1]]), []).logits
        else:
            ids = [*encode(model, TEXT), *path[:-1]]
            # The memory of generation slides; a trace of one segment has all of the text.
            one = {"segment": len(ids), "memory": 0} if kind == "xl" else {}
            if kind == "xl" and len(ids) > 8:
                continue
            logits = trace(model, ids, [], **one).logits
        logs = logits[-len(path) :].double().log_softmax(-1)
        assert node.total == pytest.approx(float(logs[range(len(path)), path].sum()), abs=1e-4)


def test_hypotheses_are_those_of_generate_and_translate(explorer_server):
    writer = cf.load(explorer_server.runs / "gpt2")
    tree = beam_tree(writer, TEXT, beam=3, max_tokens=5)
    best = writer.generate(TEXT, beam=3, max_tokens=5)
    assert best.endswith(writer.tokenizer.decode(tree.hypotheses[0].tokens))
    translator = cf.load(explorer_server.runs / "original")
    tree = beam_tree(translator, TEXT, beam=4, max_tokens=6)
    wanted = translator.translate(TEXT, beam=4, best=4, max_tokens=6)
    assert [translator.tokenizer.decode(each.tokens) for each in tree.hypotheses] == wanted


def test_view_is_a_tree_of_displayed_tokens(loaded):
    request = BeamsRequest(model="gpt2", text=TEXT, beam=2, max_tokens=3)
    found = BeamsResponse.model_validate(module.view(loaded("gpt2"), request, Limits()))
    assert [node.id for node in found.nodes] == list(range(len(found.nodes)))
    assert all(node.parent < node.id for node in found.nodes[1:])
    ranked = sorted((n for n in found.nodes if n.rank is not None), key=lambda n: n.rank)
    scores = [each.score for each in found.hypotheses]
    assert [node.score for node in ranked] == pytest.approx(scores)


def test_errors(loaded):
    with pytest.raises(ValueError, match="`beam` is 1, but it must be"):
        beam_tree(loaded("gpt2").model, TEXT, beam=1)
    with pytest.raises(ValueError, match="generate"):
        beam_tree(loaded("classifier").model, "a good film")
    with pytest.raises(ValueError, match=r"prompt has .* tokens, but gpt2-tiny reads at most 64"):
        beam_tree(loaded("gpt2").model, "the cat " * 60)
