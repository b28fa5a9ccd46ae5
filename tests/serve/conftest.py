"""Tiny models behind a server on loopback, for all tests of a process."""

import dataclasses
import json
import urllib.error
import urllib.request

import openai
import pytest
import torch

from clearformer import config as c
from clearformer.builder import build
from clearformer.http_server.server import TimeoutProtocol
from clearformer.hub.write_run import default_run_config
from clearformer.model import Model
from clearformer.serve.limits import ServeLimits
from clearformer.serve.server import make_server
from clearformer.text import Bytes, train
from clearformer.text.chat_template import ChatTemplate

WORDS = ["the cat sat on the mat and the dog sat on the log"]


@pytest.fixture(scope="session")
def models(small, scrambled):
    """Models of each kind by name."""

    def make(family, tokenizer, generation=c.GenerationDefaults(), **changes):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            config = small(family, vocabulary=tokenizer.size, **changes)
            module = scrambled(build(config)).eval()
        return Model(
            module,
            config,
            tokenizer,
            run_config=default_run_config(config, generation, tokenizer),
        )

    chatting = c.GenerationDefaults(chat_template=ChatTemplate())
    pieces = train("wordpiece", WORDS, 200)
    labels = c.Classifier(names=("bad", "good"), classes=2)
    marks = c.GenerationDefaults(start_id=256, end_ids=(257,))
    translator = dataclasses.replace(small("original", vocabulary=258, length=32), decoder_layers=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        module = build(translator).eval()
    return {
        "chat": make("modern", Bytes(), chatting, length=128),
        "plain": make("gpt2", Bytes(), length=48),
        "masked": make("bert", pieces, head=c.MaskedToken(), segments=2),
        "labels": make("classifier", pieces, head=labels),
        "pairs": Model(
            module,
            translator,
            Bytes(),
            run_config=default_run_config(translator, marks, Bytes()),
        ),
    }


@pytest.fixture(scope="session", autouse=True)
def long_timeouts():
    """Servers wait for requests and readers as long as a busy machine needs."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(TimeoutProtocol, "seconds", 300)
        changed.setattr(TimeoutProtocol, "stalled_seconds", 300)
        yield


@pytest.fixture(scope="session")
def serving(models):
    """Starts a server with some models, limits and keys."""

    def start(names=("chat",), api_keys=(), **limits):
        chosen = {name: models[name] for name in names}
        server = make_server(chosen, port=0, api_keys=api_keys, limits=ServeLimits(**limits))
        return server.in_background()

    return start


@pytest.fixture(scope="session")
def url(models, serving):
    with serving(tuple(models)) as address:
        yield address


@pytest.fixture(scope="session")
def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="session")
def ask():
    """A request by hand: (status, JSON or text, headers)."""

    def send(address, body=None, headers=None, method=None):
        headers = {"content-type": "application/json", **(headers or {})}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(address, content, headers, method=method)
        try:
            response = urllib.request.urlopen(request, timeout=300)
        except urllib.error.HTTPError as problem:
            response = problem
        with response:
            text = response.read().decode()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(text) if is_json else text, response.headers

    return send
