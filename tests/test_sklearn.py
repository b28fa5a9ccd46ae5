"""The estimator: scikit-learn's conventions, on texts.

Of scikit-learn's own checks these run that need no data, or make none of numbers. The others
(`check_fit2d_1sample`, `check_estimators_nan_inf`, sparse matrices, feature counts ...) generate
matrices of numbers, which are no texts; what they check is tested here on texts: parameters stay
as they were, `fit` returns the estimator, order and subsets do not matter, fitting twice gives the
same, an unfitted estimator says so.
"""

import copy
import gc
import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks as checks

from clearformer.runs.load import open_run
from clearformer.sklearn import TextClassifier

GOOD, BAD = ("lovely", "great", "charming"), ("dull", "awful", "boring")
TEXTS = [f"a {word} film, part {i}" for i in range(8) for word in (*GOOD, *BAD)]
LABELS = np.array(["good" if text.split()[1] in GOOD else "bad" for text in TEXTS])
SMALL = {"layers": 1, "width": 16, "model.hidden": 32, "length": 16, "threads": 1, "buckets": 64,
         "evaluations": 1, "data.vocabulary": 200, "precision": "float32"}  # fmt: skip


@pytest.fixture(autouse=True)
def no_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def small(**changes):
    return TextClassifier(**{"epochs": 12, "batch_size": 8, "settings": SMALL, "random_state": 0,
                             **changes})  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    return small().fit(TEXTS, LABELS)


def test_fit_and_predict(fitted):
    assert is_classifier(fitted)
    assert list(fitted.classes_) == ["bad", "good"]
    assert fitted.score(TEXTS, LABELS) == 1.0
    assert fitted.predict(np.array(["a lovely film", "a dull film"])).tolist() == ["good", "bad"]
    shares = fitted.predict_proba(TEXTS)
    assert shares.shape == (len(TEXTS), 2)
    assert np.allclose(shares.sum(axis=1), 1)
    assert (fitted.classes_[shares.argmax(axis=1)] == fitted.predict(TEXTS)).all()


def test_run_can_be_opened(fitted):
    assert open_run(fitted.run_).config.model.head.names == ("bad", "good")


def test_predict_accepts_empty_input(fitted):
    assert fitted.predict([]).shape == (0,)
    assert fitted.predict_proba([]).shape == (0, 2)


def test_predictions_do_not_depend_on_order_or_batch(fitted):
    whole = fitted.predict_proba(TEXTS)
    assert np.allclose(fitted.predict_proba(TEXTS[::-1])[::-1], whole, atol=1e-6)
    assert np.allclose(fitted.predict_proba(TEXTS[3:4]), whole[3:4], atol=1e-6)


def test_random_state_is_reproducible(fitted):
    again = small().fit(TEXTS, LABELS)
    assert (again.predict_proba(TEXTS) == fitted.predict_proba(TEXTS)).all()
    other = small(random_state=1).fit(TEXTS, LABELS)
    assert (other.predict_proba(TEXTS) != fitted.predict_proba(TEXTS)).any()


def test_labels_keep_their_type(fitted):
    numbers = small(epochs=None, steps=1).fit(TEXTS, np.where(LABELS == "good", 10, 9))
    assert numbers.classes_.tolist() == [9, 10]
    assert numbers.predict(TEXTS).dtype == numbers.classes_.dtype
    order = np.argsort([str(each) for each in numbers.classes_])
    assert order.tolist() == [1, 0]  # so that the columns had to be brought in order
    blank = small(epochs=None, steps=1).fit(TEXTS, np.where(LABELS == "good", "", " "))
    assert blank.classes_.tolist() == ["", " "]
    assert set(blank.predict(TEXTS)) <= {"", " "}


def test_probability_columns_follow_classes(fitted):
    """9 and 10 are sorted as numbers by scikit-learn, as words by their names."""
    numbers = small().fit(TEXTS, np.where(LABELS == "good", 10, 9))
    assert numbers.score(TEXTS, np.where(LABELS == "good", 10, 9)) == 1.0


def test_fit_does_not_change_parameters(fitted):
    assert fitted.get_params() == small().get_params()
    assert clone(fitted).get_params() == fitted.get_params()
    assert not hasattr(clone(fitted), "run_")


def test_pickle_contains_path_not_weights(fitted):
    saved = pickle.dumps(fitted)
    assert len(saved) < 4000
    assert fitted.run_.encode() in saved
    again = pickle.loads(saved)
    assert (again.predict_proba(TEXTS) == fitted.predict_proba(TEXTS)).all()
    assert (copy.deepcopy(fitted).predict(TEXTS) == fitted.predict(TEXTS)).all()


def test_temporary_run_is_removed_with_estimator():
    estimator = small(epochs=None, steps=1).fit(TEXTS, LABELS)
    first = Path(estimator.run_)
    saved = pickle.dumps(estimator)
    estimator.fit(TEXTS, LABELS)
    assert not first.exists()
    folder = Path(estimator.run_)
    assert folder.exists()
    saved = pickle.dumps(estimator)
    del estimator
    gc.collect()
    assert not folder.exists()
    with pytest.raises(ValueError, match="is gone: fit it again, and give out= to keep the run"):
        pickle.loads(saved).predict(TEXTS)


def test_runs_in_out_are_kept(tmp_path):
    estimator = small(epochs=None, steps=1, out=tmp_path / "runs")
    saved = pickle.dumps(estimator.fit(TEXTS, LABELS))
    estimator.fit(TEXTS, LABELS)
    assert len(list((tmp_path / "runs").iterdir())) == 2
    del estimator
    gc.collect()
    assert pickle.loads(saved).predict(TEXTS[:3]).shape == (3,)


def test_pipeline_and_cross_validation():
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, small(epochs=4))
    scores = cross_val_score(pipeline, [text.upper() for text in TEXTS], LABELS, cv=2)
    assert scores.shape == (2,)
    assert scores.min() > 0.6


def test_grid_search():
    grid = {"learning_rate": [0.01, 0.02], "epochs": [0.5, 12]}
    search = GridSearchCV(small(), grid, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert search.best_params_["epochs"] == 12
    assert len(search.cv_results_["params"]) == 4
    assert search.predict(["a lovely film"]).tolist() == ["good"]


def test_interrupted_fit_is_not_fitted(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("clearformer.runs.trainer.Trainer.step", interrupt)
    estimator = small()
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(TEXTS, LABELS)
    with pytest.raises(NotFittedError):
        estimator.predict(TEXTS)


@pytest.mark.parametrize(
    ("texts", "labels", "sentence"),
    [
        ("a text", ["a"], "X is 'a text', but it must be a list of texts"),
        (["a", 5], ["a", "b"], r"X\[1\] is 5, but it must be a text"),
        (np.zeros((2, 2)), ["a", "b"], r"X\[0\] is array\(.*\), but it must be a text"),
        (["a", "b"], ["a"], "inconsistent numbers of samples"),
        (["a", "b"], [0.5, 1.5], "Unknown label type"),
        (["a", "b"], None, "requires y to be passed"),
        (["a", "b", "c", "d"], ["x"] * 4, "at least two labels|too few|one label"),
    ],
)
def test_fit_rejects_invalid_input(texts, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        small().fit(texts, labels)


def test_fit_rejects_unknown_setting():
    with pytest.raises(ValueError, match="train has no setting 'layrs': did you mean 'layers'"):
        small(settings={"layrs": 2}).fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    "check",
    [
        checks.check_estimator_cloneable,
        checks.check_estimator_tags_renamed,
        checks.check_valid_tag_types,
        checks.check_estimator_repr,
        checks.check_no_attributes_set_in_init,
        checks.check_do_not_raise_errors_in_init_or_set_params,
        checks.check_mixin_order,
        checks.check_parameters_default_constructible,
        checks.check_get_params_invariance,
        checks.check_set_params,
    ],
    ids=lambda check: check.__name__,
)
def test_sklearn_estimator_checks(check):
    check("TextClassifier", TextClassifier())
