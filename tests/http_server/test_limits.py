"""Limits of every server."""

from clearformer.http_server import limits


def test_a_request_has_less_time_than_its_reader():
    assert 0 < limits.REQUEST_SECONDS < limits.STALLED_SECONDS
    assert limits.MIN_SECRET >= 16
