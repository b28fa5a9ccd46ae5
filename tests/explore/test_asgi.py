"""A request without a network."""

import asyncio

from clearformer.explore.asgi import ask


def test_an_application_is_asked_directly(explorer_server):
    app = explorer_server.app
    assert asyncio.run(ask(app, "GET", "/api/info", None))["limits"]["max_tokens"] == 512
    told = asyncio.run(ask(app, "GET", "/api/patterns?kind=causal&n=3", None))
    assert told["edges"] == 6
    body = {"model": "gpt2", "text": "the cat", "permutation": [1, 0, 2]}
    assert asyncio.run(ask(app, "POST", "/api/permute", body))["permutation"] == [1, 0, 2]


def test_a_refusal_is_none(explorer_server):
    app = explorer_server.app
    assert asyncio.run(ask(app, "GET", "/api/traces/none", None)) is None
    evil = [(b"host", b"evil.test")]
    assert asyncio.run(ask(app, "GET", "/api/info", None, evil)) is None
