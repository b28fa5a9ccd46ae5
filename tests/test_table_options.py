"""Options of a table."""

import re

import pytest

from clearformer.config import DataConfig, RunConfig, TrainConfig, run_from_json, to_json
from clearformer.families import classifier
from clearformer.table_options import EARLIER, TableFormat, TableOptions


def test_delimiters_by_name():
    for name, separator in {"tab": "\t", ";": ";", "pipe": "|", "\\t": "\t"}.items():
        assert TableFormat(delimiter=name).separator == separator
    assert TableFormat().separator is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"delimiter": "ab"}, "delimiter is 'ab', but it must be one character, or tab"),
        ({"encoding": 3}, "encoding is 3, but it must be a text"),
        ({"bad_rows": "drop"}, "`bad_rows` is 'drop', but it must be one of error, skip"),
        ({"unlabelled": "drop"}, "`unlabelled` is 'drop', but it must be one of skip, error, keep"),
        ({"rare": "skip"}, "`rare` is 'skip', but it must be one of keep, drop, error"),
        ({"normalize_labels": "yes"}, "normalize_labels is 'yes', but it must be True or False"),
    ],
)
def test_rejects_values(options, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        TableOptions(**options)


def test_config_without_options_is_read_as_earlier_versions_did():
    config = RunConfig(
        model=classifier(),
        data=DataConfig(source="a.csv"),
        train=TrainConfig(learning_rate=1.0, batch_size=1, steps=1),
    )
    document = to_json(config)
    assert run_from_json(document).data.table == TableOptions()
    del document["data"]["table"]
    assert run_from_json(document).data.table == EARLIER
