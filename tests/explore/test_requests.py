"""Request schema: committed to web/openapi.json, and no valid request crashes the server."""

import contextlib
import json
import os
from pathlib import Path

import pytest

from clearformer.explore import requests

ROOT = Path(__file__).parents[2]
MODELS = ["gpt2", "bert", "classifier", "original", "xl", "nan", "nowhere"]
EXAMPLES = int(os.environ.get("CLEARFORMER_FUZZ", "4"))  # of each operation and kind


def test_openapi_schema_is_up_to_date(explorer_server):
    path = ROOT / "web" / "openapi.json"
    if not path.exists():
        pytest.skip("web/ is not part of this installation")
    now = json.loads(json.dumps(explorer_server.app.openapi()))
    hint = "python -m clearformer.explore.app > web/openapi.json"
    assert json.loads(path.read_text()) == now, hint


def test_rejects_unknown_fields_and_invalid_numbers():
    for more in ({"temprature": 1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_k": 0},
                 {"seed": -1}, {"max_new_tokens": 10**6}):  # fmt: skip
        with pytest.raises(ValueError, match="1 validation error"):
            requests.GenerateRequest(model="a", **more)


def test_no_valid_request_causes_server_error(explorer_server):
    """Every operation, with data made from the application's own schema: no 500."""
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_url(f"{explorer_server.url}/api/openapi.json", timeout=300)
    trace = explorer_server.client.post("/api/traces", {"model": "gpt2", "text": "the cat"})["id"]
    asked, failed = set(), []
    for result in schema.get_all_operations():
        operation = result.ok()
        if "/events" in operation.path:
            continue  # never ends
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            for status, command in answers(operation, mode, trace):
                asked.add(operation.label)
                if status >= 500:
                    failed.append((operation.label, status, command))
    assert failed == []
    assert len(asked) > 25


def answers(operation, mode, trace):
    """Statuses of some requests to one operation, each with the command that repeats it."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable

    found = []

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        # Existing names, since nearly every response would be "unknown model" otherwise.
        place = len(str(case.body)) + len(str(case.query))
        if isinstance(case.body, dict) and "model" in case.body and place % 3:
            case.body["model"] = MODELS[place % len(MODELS)]
        if case.path_parameters and place % 3:
            case.path_parameters["id"] = trace if "traces" in operation.path else "gpt2"
        found.append((case.call(timeout=300).status_code, case.as_curl_command()))

    with contextlib.suppress(Unsatisfiable):  # nothing can be wrong where nothing is asked
        ask()
    return found
