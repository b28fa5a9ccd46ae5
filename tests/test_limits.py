"""Limits stand in one file, and whoever applies one names it."""

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
        # The fields of a model's config are named by one sentence for all of them, and the keys
        # of somebody's config.json with the number itself.
        if not name.startswith("MOST_") and name != "GRACE":
            named = rf'\({name}\)|limits\.{name}, "{name}"'  # the second is for safe_files to name
            assert re.search(named, text), f"no error names {name}"
