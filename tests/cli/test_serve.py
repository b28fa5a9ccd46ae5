"""`clearformer serve`: a process that drains on SIGTERM; each error is one sentence."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "0.0.0.0"], "host is 0.0.0.0, which other machines can reach: add --api-keys"),
        (["--port", "99999"], "port is 99999, but it must be from 0 to 65535"),
        (["--max-batch", "0"], "--max-batch"),
        (["--timeout", "-1"], "--timeout"),
        (["--api-keys", "nowhere"], "nowhere"),
        (["RUN"], "two models have the name run: rename the folder of one"),
    ],
)
def test_rejects_invalid_arguments(clearformer, run, words, sentence):
    said = clearformer("serve", run, *[run if word == "RUN" else word for word in words])
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1


def test_rejects_missing_folder(clearformer, folder):
    said = clearformer("serve", str(folder / "none"))
    assert said.code == 2
    assert "there is no folder or file" in said.err


def post(url, **body):
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.loads(response.read())


def test_process_drains_on_sigterm(run):
    """A long answer that is being generated at SIGTERM still arrives whole; the exit code is 0."""
    command = [sys.executable, "-m", "clearformer", "serve", run, "--port", "0"]
    command += ["--drain-seconds", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            url = re.search(r"serving run at (http://127\.0\.0\.1:\d+/v1)", line)[1]
            answers = []
            asking = threading.Thread(
                target=lambda: answers.append(
                    post(f"{url}/completions", model="run", prompt="1", max_tokens=400, seed=1)
                )
            )
            asking.start()
            while True:
                with urllib.request.urlopen(url.replace("/v1", "/metrics"), timeout=300) as found:
                    if re.search(
                        r'prompt_tokens_total\{model="run"\} [1-9]', found.read().decode()
                    ):
                        break
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            asking.join(300)
            assert process.wait(300) == 0
        finally:
            process.kill()
    (answer,) = answers
    assert answer["usage"]["completion_tokens"] == 400
