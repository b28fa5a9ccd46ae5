"""Generating text over HTTP; a disconnected client ends it."""

import time

from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream

ASKED = {"model": "gpt2", "prompt": "the cat", "max_new_tokens": 10, "temperature": 0.8, "seed": 7}


def test_text_matches_command_line(client, explorer_server):
    events = client.events("/api/generate", ASKED)
    assert [name for name, _, _ in events] == ["token"] * 10 + ["done"]
    assert events[-1][1] == {"reason": "length"}
    model = explorer_server.models["gpt2"]
    writer = LanguageModel(model.module, model.config, model.generation, model.tokenizer)
    expected = stream(writer, "the cat", Sampling(temperature=0.8), max_tokens=10, seed=7)
    assert "".join(data["text"] for _, data, _ in events[:-1]) == "".join(t.text for t in expected)


def test_disconnect_ends_text_and_server_stays_responsive(client):
    events = client.events("/api/generate", {**ASKED, "model": "twelve", "max_new_tokens": 200}, 3)
    assert len(events) == 3  # before the end
    began = time.monotonic()
    while client.get("/api/info")["generating"]:
        assert time.monotonic() - began < 60
        time.sleep(0.02)


def test_invalid_requests_get_error_responses(client):
    client.post("/api/generate", {**ASKED, "model": "bert"}, status=409)
    client.post("/api/generate", {**ASKED, "temperature": -1}, status=422)
    client.post("/api/generate", {**ASKED, "max_new_tokens": 500}, status=413)
    client.post("/api/generate", {**ASKED, "model": "none"}, status=404)


def test_error_while_streaming_is_an_event(client):
    asked = {**ASKED, "model": "nan"}
    name, data, _ = client.events("/api/generate", asked)[-1]
    assert name == "error"
    assert "of the next token are NaN" in data["message"]
