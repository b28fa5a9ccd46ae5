"""G12 and G13: named as skipped as long as a run is one process."""

from dataclasses import fields

import pytest

from clearformer.config import TrainConfig
from clearformer.selftest import ranks
from clearformer.selftest.nursery import Skipped


@pytest.mark.skipif(
    "distribute" in {field.name for field in fields(TrainConfig)}, reason="runs can be distributed"
)
def test_skipped_by_name(tmp_path):
    for check, count in ((ranks.elastic, {"kills": 1}), (ranks.clean_exit, {"count": 1})):
        with pytest.raises(Skipped, match="trains in one process"):
            check(tmp_path, **count)
