"""Limits are defined in one file, and the error that applies one names it."""

import re
from pathlib import Path

from clearformer import limits

SOURCE = Path(limits.__file__).parent


def test_every_limit_is_applied_and_named_in_its_error():
    text = "".join(p.read_text() for p in SOURCE.rglob("*.py") if p.name != "limits.py")
    names = [name for name in vars(limits) if name.isupper()]
    assert len(names) >= 12
    for name in names:
        assert f"limits.{name}" in text, f"{name} is applied by nobody"
        # Fields of a model's config are named by one f-string for all of them.
        of_a_file = name.endswith(("_BYTES", "_FILES", "_RATIO", "_SHARDS", "_RECORDS"))
        if of_a_file and name != "RATIO_FREE_BYTES":
            named = rf'\({name}\)|limits\.{name}, "{name}"'  # the second is for safe_files to name
            assert re.search(named, text), f"no error names {name}"
