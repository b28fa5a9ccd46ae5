"""The pytest plugin: a fixture `verify` that fails a test with the report.

    def test_mine(verify):
        verify(MyAttention(64, 4))

Nothing heavy is imported before the fixture is used: the plugin is loaded in every test session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def verify() -> Callable[..., Any]:
    """Verify a model; the test fails if something is wrong."""

    def check(target: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        from clearformer.verification.check import verify as look

        report = look(target, **options)
        if not report:
            pytest.fail(str(report), pytrace=False)
        return report

    return check
