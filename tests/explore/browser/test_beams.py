"""The tree of a beam search, as it is drawn."""

import pytest

from clearformer.interpretability import beam_tree

PLACES = {"gpt2": {"view": "generate"}, "original": {"view": "tasks", "task": "translate"}}


@pytest.mark.parametrize("kind", PLACES)
def test_nodes_and_scores_are_those_of_python(visit, loaded, kind):
    page = visit.go(**PLACES[kind], model=kind, text="the cat sat", ready="#search")
    page.click("#search")
    page.wait_for_selector("#hypotheses td")
    tree = beam_tree(loaded(kind).model, "the cat sat", beam=3, max_tokens=8)
    drawn = page.eval_on_selector_all(
        "#beams .node", "all => all.map(e => [Number(e.dataset.id), e.className])"
    )
    assert [each[0] for each in drawn] == [node.id for node in tree.nodes[1:]]
    for (_, style), node in zip(drawn, tree.nodes[1:], strict=True):
        assert node.fate in style.split()
        shown = page.locator(f"#beams [data-id='{node.id}'] small")
        if node.rank is not None:
            assert float(shown.inner_text().replace(chr(8722), "-")) == pytest.approx(
                node.total, abs=6e-3
            )
    best = next(node for node in tree.nodes if node.rank == 0)
    ways = page.eval_on_selector_all("#beams .best", "all => all.map(e => Number(e.dataset.id))")
    assert ways[-1] == best.id
    assert len(ways) == best.length
    scores = page.locator("#hypotheses td").all_inner_texts()
    assert [float(each.replace(chr(8722), "-")) for each in scores] == pytest.approx(
        [each.score for each in tree.hypotheses], abs=6e-5
    )
