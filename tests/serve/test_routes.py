"""The other routes, API keys, limits and access control, over plain HTTP."""

import json
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

KEY, OTHER = "a-key-that-is-long-enough", "another-key-of-this-server"


def test_classify_matches_model_classify(ask, url, models):
    status, found, _ = ask(f"{url}/classify", {"model": "labels", "texts": ["the cat", "a dog"]})
    assert status == 200
    expected = models["labels"].classify(["the cat", "a dog"])
    assert [each["label"] for each in found["results"]] == [each.label for each in expected]
    assert found["results"][0]["probabilities"].keys() == {"bad", "good"}


def test_fill_matches_model_fill(ask, url, models):
    body = {"model": "masked", "texts": "the [MASK] sat", "top_k": 3}
    status, found, _ = ask(f"{url}/fill", body)
    assert status == 200
    expected = models["masked"].fill("the [MASK] sat", top_k=3)
    assert [each["token"] for each in found["results"][0][0]] == [c.piece for c in expected[0]]


def test_translate_matches_model_translate(ask, url, models):
    body = {"model": "pairs", "texts": ["cat"], "beam": 2, "best": 2, "max_tokens": 5}
    status, found, _ = ask(f"{url}/translate", body)
    assert status == 200
    expected = models["pairs"].translate(["cat"], beam=2, best=2, max_tokens=5)
    assert [each["text"] for each in found["results"][0]] == expected[0]


@pytest.mark.parametrize(
    ("route", "body", "sentence"),
    [
        ("/classify", {"model": "chat", "texts": "x"}, "chat is a generator: it can generate and"),
        ("/fill", {"model": "labels", "texts": "x"}, "labels is a classifier: it can classify"),
        ("/fill", {"model": "masked", "texts": "no mask"}, "[MASK]"),
        ("/translate", {"model": "masked", "texts": "x"}, "it can fill and embed, not translate"),
        ("/classify", {"model": "labels", "texts": []}, "texts has 0 values, but it must have"),
        ("/classify", {"model": "labels"}, "texts is missing: add it"),
        ("/v1/completions", b"{", "the body is not JSON ("),
        ("/v1/completions", b"[]", "body"),
    ],
)
def test_invalid_requests_return_400(ask, url, route, body, sentence):
    status, found, _ = ask(f"{url}{route}", body)
    assert status == 400
    assert sentence in found["error"]["message"]
    assert found["error"]["type"] == "invalid_request_error"


def test_unknown_routes_and_models_return_404(ask, url):
    assert ask(f"{url}/nowhere")[0] == 404
    assert ask(f"{url}/v1/models/none")[0] == 404
    status, found, headers = ask(f"{url}/v1/completions")
    assert (status, found["error"]["type"]) == (405, "invalid_request_error")
    assert headers["allow"] == "POST"
    status, found, _ = ask(f"{url}/classify", {"model": "none", "texts": "x"})
    assert (status, found["error"]["code"]) == (404, "model_not_found")


def test_rejects_huge_body_before_reading_it(ask, url):
    status, found, _ = ask(f"{url}/v1/completions", None, {"content-length": str(10**8)}, "POST")
    assert status == 413
    assert found["error"]["message"] == "the request has more than 8,388,608 bytes"


def test_rejects_huge_chunked_body(url):
    """In chunks, of which no header tells how many there are."""
    import http.client

    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    chunks = (b" " * 2**20 for _ in range(9))
    connection.request(
        "POST",
        "/v1/completions",
        chunks,
        {"content-type": "application/json", "transfer-encoding": "chunked"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 413
    connection.close()


# --- the gate ------------------------------------------------------------------------------


def test_rejects_foreign_origins(ask, url):
    body = {"model": "chat", "prompt": "x"}
    for headers in ({"origin": "http://evil.test"}, {"sec-fetch-site": "cross-site"}):
        status, found, _ = ask(f"{url}/v1/completions", body, headers)
        assert (status, found["error"]["code"]) == (403, "foreign_origin")
    assert ask(f"{url}/v1/completions", body, {"host": "evil.test"})[0] == 400
    status, found, _ = ask(f"{url}/v1/completions", body, {"content-type": "text/plain"})
    assert (status, found["error"]["message"]) == (
        415,
        "a POST must have the header Content-Type: application/json",
    )


def test_requires_valid_api_key(ask, serving):
    with serving(api_keys=(KEY, OTHER)) as url:
        for headers in (
            {},
            {"authorization": f"Bearer {KEY}x"},
            {"authorization": f"Bearer {KEY[:-1]}"},
            {"authorization": f"Basic {KEY}"},
            {"authorization": KEY},
            {"authorization": "Bearer "},
        ):
            for route in ("/v1/models", "/metrics", "/docs", "/openapi.json", "/nowhere"):
                status, found, answered = ask(f"{url}{route}", headers=headers)
                assert status == 401
                assert found["error"]["type"] == "authentication_error"
                assert answered["www-authenticate"] == "Bearer"
        for key in (KEY, OTHER):
            assert ask(f"{url}/v1/models", headers={"authorization": f"bearer {key}"})[0] == 200
        assert ask(f"{url}/health")[0] == 200


# --- pages ---------------------------------------------------------------------------------


def test_docs_page_has_every_route_without_scripts(ask, url):
    status, page, headers = ask(f"{url}/docs")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert "<script" not in page
    document = ask(f"{url}/openapi.json")[1]
    for path in document["paths"]:
        assert path in page
    for field in ("temperature", "response_format", "max_tokens"):
        assert f"<code>{field}</code>" in page


def test_metrics_can_be_parsed_by_prometheus(ask, serving):
    with serving() as url:
        ask(f"{url}/v1/completions", {"model": "chat", "prompt": "abc", "max_tokens": 4, "n": 2})
        ask(f"{url}/v1/completions", {"model": "none", "prompt": "abc"})
        ask(f"{url}/{'x' * 50}")
        status, text, headers = ask(f"{url}/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        samples = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    assert samples["clearformer_generated_tokens_total", "chat"] == 8
    assert samples["clearformer_prompt_tokens_total", "chat"] == 6
    assert samples["clearformer_requests_total", "/v1/completions", "200"] == 1
    assert samples["clearformer_requests_total", "/v1/completions", "404"] == 1
    assert samples["clearformer_requests_total", "404", "other"] == 1


# --- curl ----------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_receives_stream(url, client):
    body = {"model": "chat", "prompt": "the", "max_tokens": 6, "seed": 1, "stream": True}
    command = ["curl", "-sN", f"{url}/v1/completions", "-H", "Content-Type: application/json"]
    done = subprocess.run(
        [*command, "-d", json.dumps(body)], capture_output=True, text=True, timeout=300, check=True
    )
    *events, last = [line for line in done.stdout.split("\n") if line]
    assert last == "data: [DONE]"
    texts = [json.loads(each.removeprefix("data: "))["choices"][0]["text"] for each in events]
    whole = client.completions.create(model="chat", prompt="the", max_tokens=6, seed=1)
    assert "".join(texts) == whole.choices[0].text


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_receives_health_status(url):
    command = ["curl", "-s", "-o", "-", "-w", "%{http_code}", f"{url}/health"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == '{"status":"ok"}200'
