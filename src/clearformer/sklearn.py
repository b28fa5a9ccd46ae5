"""scikit-learn estimators: a text classifier for pipelines, cross-validation and grid search.

Needs scikit-learn: pip install 'clearformer[sklearn]'.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as problem:
    raise ImportError(
        "clearformer.sklearn needs scikit-learn: pip install 'clearformer[sklearn]'"
    ) from problem

if TYPE_CHECKING:
    from clearformer.runs.load import Opened

OWN = (
    "preset",
    "from_",
    "learning_rate",
    "batch_size",
    "epochs",
    "steps",
    "minutes",
    "out",
    "seed",
)
SAVED_ELSEWHERE = ("_opened", "_cleanup")  # not part of a pickle: weights, the temporary folder


class TextClassifier(ClassifierMixin, BaseEstimator):
    """Classifier of texts, trained by `clearformer.train`.

    A tenth of the training texts of each class is held out to choose the checkpoint, so each
    class needs at least two texts; ``settings={"validation_fraction": 0.2}`` changes that.

    Fitting writes a run folder, `run_`. A pickle holds the parameters and the path of that folder,
    never weights: give `out` to keep the folder longer than the estimator.

    Args:
        preset (str): A classifier preset, or ``"classify"`` with `from_`. Default:
            ``"classifier-pairs"``.
        from_ (path, optional): A run whose weights and tokenizer to start from.
        learning_rate (float, optional): Default: that of the preset's recipe.
        batch_size (int, optional): Texts per step. Default: that of the preset's recipe.
        epochs (float, optional): Passes over the training texts. Default: 5, unless `steps` or
            `minutes` is given.
        steps (int, optional): Budget in steps, instead of `epochs`.
        minutes (float, optional): Budget in minutes; results then depend on the machine.
        settings (mapping, optional): Other settings of `clearformer.train` by name, such as
            ``{"layers": 2, "length": 128}``.
        out (path, optional): Folder in which each fit creates a run folder. Default: a temporary
            folder that is removed with the estimator.
        random_state (int, RandomState or None): Seed of weights, batches and dropout; with an
            integer, two fits give the same classifier. Default: None.
        verbose (bool): Show the progress of training. Default: False.

    Attributes:
        classes_ (ndarray): The labels, sorted.
        run_ (str): The run folder, which `clearformer.load` and every command open.

    Example:
        >>> from clearformer.sklearn import TextClassifier
        >>> texts = ["a lovely film", "a dull film", "lovely, lovely", "so dull"] * 4
        >>> labels = ["good", "bad"] * 8
        >>> small = {"layers": 1, "width": 16, "length": 16, "threads": 1}
        >>> classifier = TextClassifier(steps=20, settings=small, random_state=0)
        >>> classifier.fit(texts, labels).predict(["a dull film"]).shape
        (1,)
    """

    def __init__(
        self,
        preset: str = "classifier-pairs",
        *,
        from_: str | os.PathLike[str] | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        settings: Mapping[str, Any] | None = None,
        out: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        self.from_ = from_
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.steps = steps
        self.minutes = minutes
        self.settings = settings
        self.out = out
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Iterable[str], y: Any) -> Self:  # noqa: N803
        """Train on texts and their labels.

        Args:
            X (iterable of str): The texts.
            y (array-like): The label of each text.

        Returns:
            TextClassifier: The estimator itself.
        """
        from clearformer.run_training import Training
        from clearformer.runs.progress import Silent, reporter

        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        own = [name for name in self.settings or () if name in OWN]
        if own:
            raise ValueError(f"settings has {own[0]!r}: give it to TextClassifier itself")
        texts = _texts(X)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(texts, labels)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        names = _names(classes)
        budget = {"epochs": self.epochs, "steps": self.steps, "minutes": self.minutes}
        if not any(budget.values()):
            budget["epochs"] = 5
        training = Training(
            self.preset,
            from_=self.from_,
            data=list(zip(texts, [names[number] for number in numbers], strict=True)),
            out=self._new_folder(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            **{**budget, **(self.settings or {})},
        )
        training.config.model.require_verb("classify", f"the preset {self.preset!r}")
        report = reporter(quiet=False, json=False) if self.verbose else Silent()
        training.execute(report, lambda: 0)
        self.classes_ = classes
        self.run_ = str(training.folder)
        self._opened: Opened | None = None
        return self

    def predict(self, X: Iterable[str]) -> NDArray[Any]:  # noqa: N803
        """The most likely label of each text.

        Args:
            X (iterable of str): The texts.

        Returns:
            ndarray of shape (n_texts,): Labels of `classes_`.
        """
        found = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[found])

    def predict_proba(self, X: Iterable[str]) -> NDArray[np.float64]:  # noqa: N803
        """The probability of each label for each text.

        Args:
            X (iterable of str): The texts.

        Returns:
            ndarray of shape (n_texts, n_classes): Columns in the order of `classes_`.
        """
        check_is_fitted(self, "run_")
        from clearformer import data
        from clearformer.tasks.classification import class_names, predict

        texts = _texts(X)
        if not texts:
            return np.zeros((0, len(self.classes_)))
        opened = self._open()
        names = class_names(opened.config, self.run_)
        table = data.Table("X", tuple(texts), None)
        rows = data.encode_rows(table, opened.tokenizer, names)
        found = predict(opened.model, rows, opened.config).double().numpy()
        columns = [names.index(name) for name in _names(self.classes_)]
        return found[:, columns] / found.sum(axis=1, keepdims=True)

    def _open(self) -> Opened:
        """The trained model; opened once."""
        from clearformer.runs.load import open_run

        if self._opened is None:
            if not Path(self.run_).is_dir():
                raise ValueError(
                    f"the run of this classifier, {self.run_}, is gone: fit it again, and give "
                    f"out= to keep the run"
                )
            self._opened = open_run(self.run_, verb="classify")
        return self._opened

    def _new_folder(self) -> Path:
        """A folder for one fit; without `out` one that is removed with the estimator."""
        if self.out is not None:
            try:
                os.makedirs(self.out, exist_ok=True)
            except OSError as problem:
                raise ValueError(f"{self.out} cannot be written: {problem.strerror}") from None
            return Path(tempfile.mkdtemp(prefix="fit-", dir=self.out))
        temporary = tempfile.TemporaryDirectory(prefix="clearformer-", ignore_cleanup_errors=True)
        if hasattr(self, "_cleanup"):
            self._cleanup()
        self._cleanup: weakref.finalize[Any, Any] = weakref.finalize(self, temporary.cleanup)
        return Path(temporary.name) / "run"

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        return {name: value for name, value in state.items() if name not in SAVED_ELSEWHERE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._opened = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _texts(X: Iterable[Any]) -> list[str]:  # noqa: N803
    """The texts of X; ValueError for anything else."""
    if isinstance(X, str | bytes) or not isinstance(X, Iterable):
        raise ValueError(f"X is {X!r:.60}, but it must be a list of texts: give [text]")
    texts = list(X)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"X[{place}] is {text!r:.60}, but it must be a text")
    return [str(text) for text in texts]


def _names(classes: NDArray[Any]) -> list[str]:
    """Names of the classes in the run: the labels as texts, or numbers where two would be equal."""
    names = [str(each) for each in classes]
    clear = all(name.strip() for name in names) and len(set(names)) == len(names)
    return names if clear else [str(place) for place in range(len(names))]
