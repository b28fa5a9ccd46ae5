"""The shown source code is the code that runs."""

import html
import inspect
import re

import pytest

from clearformer.core.kernels import weights
from clearformer.explore.model_info import position_kind
from clearformer.explore.source_code import STAGES, SYMBOLS, resolve, source, symbols
from clearformer.explore.stages import AXES, SUMMARIES
from clearformer.http_server.errors import Problem


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_symbol_shows_its_source(symbol):
    told = source(symbol)
    assert told["text"] == inspect.getsource(resolve(symbol))
    assert html.unescape(re.sub(r"<[^>]*>", "", told["html"])) == told["text"]
    assert told["file"].startswith("clearformer/")


def test_every_stage_has_source():
    assert set(AXES) - set(SUMMARIES) - {"logits"} <= set(STAGES)
    assert source("core.kernels.weights")["text"] == inspect.getsource(weights)
    assert symbols()["stages"]["weights"] == "core.kernels.weights"


def test_every_kind_of_position_has_its_own_source(explorer_server):
    """The Positions page shows the class of the model's own scheme."""
    for entry in explorer_server.library.models():
        scheme = type(entry.config.position)
        assert resolve(STAGES[position_kind(entry.config)]).__name__ == scheme.__name__


@pytest.mark.parametrize("symbol", ["os.system", "core.kernels", "../../etc/passwd", "", "a"])
def test_rejects_other_symbols(symbol):
    with pytest.raises(Problem) as problem:
        source(symbol)
    assert problem.value.status == 404
