"""The Architectures page: one layer and head for all models, masks, and what comes out."""

import math

from clearformer.explore.trace import trace

TEXT = "the cat sat on the mat"
READY = ".three section:nth-child(3) [data-output]"
QUIET = "() => !document.querySelector('.ghost, .wait')"


def test_models_and_masks(visit, explorer_server):
    """The masks of BERT, a strided decoder and a translator, by keyboard, in the address."""
    page = visit.go("architectures", model="sparse", text=TEXT, pair="original", ready=READY)
    page.wait_for_function(QUIET)
    outputs = page.eval_on_selector_all("[data-output]", "all => all.map(x => x.dataset.output)")
    assert outputs == ["fill", "generate", "translate"]
    assert page.input_value("#model-decoder") == "sparse"  # the open model, in its column
    page.focus("#archlayer")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => location.hash.includes('archlayer=1')")
    page.locator("text=layer 1, head 0").nth(4).wait_for()  # all five parts, at their own pace
    masked = trace(explorer_server.models["sparse"], TEXT).get("scores_masked", layer=1, head=0)
    size = len(TEXT)
    assert size < int(masked.isfinite().sum()) < size * (size + 1) // 2
    bert, sparse, encoder, decoder, cross = visit.numbers("[data-allowed]", "data-allowed")
    assert sparse == int(masked.isfinite().sum())
    written = math.isqrt(2 * int(decoder))  # T: a causal mask has T (T + 1) / 2 pairs
    assert decoder == written * (written + 1) / 2
    assert math.isqrt(int(bert)) ** 2 == bert  # every token attends to every token
    assert cross == written * math.isqrt(int(encoder))


def test_layer_is_the_last_one_that_a_model_has(visit):
    """A link may name more layers and heads than a model has."""
    page = visit.go("architectures", model="bert", text=TEXT, archlayer=40, archhead=40,
                    ready=READY)  # fmt: skip
    page.wait_for_function(QUIET)
    assert page.locator("text=layer 1, head 1").count() == 5


def test_text_is_read_by_all(visit):
    page = visit.go("architectures", model="bert", text=TEXT, ready=READY)
    page.fill("#text", "a dog")
    page.press("#text", "Enter")
    page.wait_for_function("() => location.hash.includes('text=a+dog')")
    # Five characters in a causal model.
    page.wait_for_selector(".three section:nth-child(2) [data-allowed='15']")
    page.wait_for_selector(".three section:nth-child(1) [data-output=fill]")
    page.wait_for_function(QUIET)
    assert page.locator("[data-allowed]").count() == 5
