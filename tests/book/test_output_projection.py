"""The page about W_o: it is what the stored runs say, and its rule does what it states."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        path = ROOT / "benchmarks/output_projection_page.py"
        spec = importlib.util.spec_from_file_location("output_projection_page", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def record(seed, variant, loss, size="small", corpus="imdb"):
    measured = {"step": 5, "loss": loss, "accuracy": 0.5}
    key = {"kind": "run", "corpus": corpus, "size": size, "variant": variant, "seed": seed}
    return {**key, "parameters": 10, "steps": measured, "time": measured}


def records(differences):
    """Runs with W_o of losses that differ much between seeds, and runs without it."""
    found = []
    for seed, difference in enumerate(differences):
        found.append(record(seed, "with", 1.0 + seed))
        found.append(record(seed, "without", 1.0 + seed + difference))
    return found


def test_page_matches_stored_runs(page):
    assert page.PAGE.read_text() == page.page(page.read())
    assert page.PICTURE.exists()


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((0.1, 0.11, 0.09, 0.1, 0.1), "worse"),
        ((-0.1, -0.11, -0.09), "better"),
        ((0.1, -0.1, 0.2, -0.2, 0.05), "no difference seen"),
        ((0.3, 0.01, 0.02), "no difference seen"),  # one large difference proves nothing
    ],
)
def test_pairs_seeds_and_judges_by_interval(page, differences, verdict):
    compared = [each for each in page.compare(records(differences)) if each.variant == "without"]
    assert {each.verdict for each in compared} == {verdict}
    assert compared[0].mean == pytest.approx(sum(differences) / len(differences))


def test_interval_uses_students_t(page):
    (one, _) = (e for e in page.compare(records((0.1, 0.2, 0.3))) if e.variant == "without")
    assert one.half == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)


def test_leaves_out_two_seeds(page):
    assert page.compare(records((0.1, 0.1))) == []


@pytest.mark.parametrize(
    ("differences", "words"),
    [
        ((0.1, 0.11, 0.09), "Some of these models need"),
        ((-0.1, -0.11, -0.09), "can be removed here, and often should be"),
        ((0.1, -0.1, 0.05), "No difference is seen"),
    ],
)
def test_answer_in_words_follows_from_the_cells(page, differences, words):
    assert words in page.in_words(records(differences))


def test_answer_depends_on_model_if_cells_differ(page):
    other = [
        {**each, "size": "large"} for each in records((-0.1, -0.11, -0.09)) if each["kind"] == "run"
    ]
    answer = page.in_words(records((0.1, 0.11, 0.09)) + other)
    assert "It depends on the model" in answer
    assert "- imdb, small: worse in 2" in answer
    assert "- imdb, large: better in 2" in answer


def test_equal_rates_compare_tuned_runs_with_the_control(page):
    rates = [
        {
            "kind": "rate",
            "corpus": "enwik8",
            "variant": name,
            "rate": each,
            "loss": abs(each - best),
        }
        for name, best in (("with", 4e-3), ("without", 8e-3))
        for each in (2e-3, 4e-3, 8e-3, 1.6e-2)
    ]
    runs = []
    for seed in range(3):
        for name, own, other in (("with", 4e-3, 8e-3), ("without", 8e-3, 4e-3)):
            run = {**record(seed, name, 1.0, corpus="enwik8"), "rate": own}
            key = {key: run[key] for key in ("corpus", "size", "variant", "seed")}
            loss = 2.0 + 0.001 * seed * (name == "with")
            runs += [run, {**key, "kind": "other rate", "rate": other, "loss": loss}]
    low, high = page.same_rates(rates + runs).splitlines()[2:]
    assert low.startswith("| small | 0.004 | 3 | 1.443 ± 0.000 | 2.885 ± 0.000 | +1.443")
    assert low.endswith("| worse |")
    assert high.startswith("| small | 0.008 | 3 | 2.887 ± 0.001 | 1.443 ± 0.000 | -1.444")
    assert high.endswith("| better |")


def test_parameter_counts_of_variants(page):
    from output_projection import shaped, variant

    from clearformer.builder import outline
    from clearformer.families.generator import generator

    for size in ("small", "medium", "large"):
        config = shaped(generator(), size)
        counts = {
            name: sum(p.numel() for p in outline(variant(config, name)).parameters())
            for name in ("with", "without", "refilled", "one", "wide")
        }
        lost = config.layers * (config.width**2 + config.width)
        assert counts["with"] - counts["without"] == lost
        assert abs(counts["refilled"] - counts["with"]) < 0.005 * counts["with"]
        assert counts["one"] == counts["with"] < counts["wide"]
