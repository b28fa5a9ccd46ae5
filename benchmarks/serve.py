"""The API server under pressure, and its throughput beside `transformers serve`.

    python benchmarks/serve.py stress       # 200 clients at once, some of which vanish
    python benchmarks/serve.py throughput   # 8 clients against one
    python benchmarks/serve.py peer         # beside transformers serve (needs accelerate), in turns

Every server is a process of its own on loopback with a random model of the same weights, every
request greedy or seeded. Speeds are ratios of the same run; the rounds take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import clearformer as cf
from clearformer.text import train as train_tokenizer

CLIENTS, VANISHING = 200, 5  # every fifth goes away in the middle of its answer
TOKENS = 32
DEADLINE = 600.0  # seconds for one request


def write_model(folder: Path, layers: int, width: int) -> Path:
    """A random GPT-2 with a tokenizer of this repository's documentation, as a Hugging Face folder
    (which both servers open)."""
    texts = [path.read_text() for path in sorted(Path("docs").glob("*.md"))]
    tokenizer = train_tokenizer("bpe", texts, 2000)
    config = replace(
        cf.families.gpt2("small"), vocabulary=tokenizer.size, length=256, layers=layers,
        width=width, heads=width // 64, hidden=4 * width, dropout=cf.config.Dropout(),
    )  # fmt: skip
    model = cf.Model(cf.build(config), config, tokenizer)
    model.export(folder / "model")
    return folder / "model"


@contextmanager
def server(command: list[str], url: str | None, ready: str) -> Iterator[tuple[str, int]]:
    """A server's address and process id; it is asked to end with SIGTERM."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE if url is None else log, stderr=log, text=True,
            env=environment,
        )  # fmt: skip
        try:
            if url is None:
                assert process.stdout is not None
                found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
                if found is None:
                    log.seek(0)
                    raise RuntimeError(log.read()[-2000:])
                url = found[0]
            wait_for(f"{url}{ready}", process)
            yield url, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(url: str, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server did not start")


def ours(model: Path, *flags: str) -> Any:
    command = [sys.executable, "-m", "clearformer", "serve", str(model), "--port", "0", *flags]
    return server(command, None, "/health")


def theirs(model: Path, *flags: str) -> Any:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(Path(sys.executable).with_name("transformers"))
    address = ["--host", "127.0.0.1", "--port", str(port)]
    command = [program, "serve", str(model), "--device", "cpu", *address, *flags]
    return server(command, f"http://127.0.0.1:{port}", "/health")


def complete(url: str, model: str, prompt: str, seed: int, tokens: int = TOKENS) -> str:
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "seed": seed}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=DEADLINE) as response:
        answer = json.loads(response.read())
    usage = answer.get("usage") or {}
    assert usage.get("completion_tokens", tokens) == tokens, usage
    text: str = answer["choices"][0]["text"]
    return text


def vanish(url: str, prompt: str) -> None:
    """Ask for a stream, read its beginning and cut the connection."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=DEADLINE)
    body = {"model": "model", "prompt": prompt, "max_tokens": 200, "stream": True}
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    connection.getresponse().read(20)
    connection.close()


def memory(pid: int) -> float:
    """Resident memory in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


# --- the three measurements ----------------------------------------------------------------------


def stress(model: Path, rounds: int) -> None:
    prompts = [f"{number} of the models" for number in range(CLIENTS)]
    expected = cf.load(model).generate(prompts, max_tokens=TOKENS, temperature=0, batch_size=32)
    with ours(model, "--max-queue", str(CLIENTS)) as (url, pid):

        def one(number: int) -> str | None:
            if number % VANISHING == 0:
                vanish(url, prompts[number])
                return None
            return complete(url, "model", prompts[number], number)

        for count in range(1, rounds + 1):
            with ThreadPoolExecutor(CLIENTS) as pool:
                texts = list(pool.map(one, range(CLIENTS)))
            wrong = sum(
                text is not None and text != wanted
                for text, wanted in zip(texts, expected, strict=True)
            )
            answered = sum(text is not None for text in texts)
            print(
                f"round {count}: {answered} of {CLIENTS - -(-CLIENTS // VANISHING)} answers, "
                f"{wrong} wrong, {-(-CLIENTS // VANISHING)} clients vanished, "
                f"{memory(pid):.0f} MB resident",
                flush=True,
            )


def tokens_per_second(url: str, model: str, clients: int, requests: int) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(
            pool.map(
                lambda number: complete(url, model, f"{number} of the models", number),
                range(requests),
            )
        )
    return requests * TOKENS / (time.perf_counter() - start)


def throughput(model: Path, rounds: int) -> None:
    with ours(model) as (url, _):
        complete(url, "model", "warm up", 0)
        ratios = []
        for count in range(1, rounds + 1):
            alone = tokens_per_second(url, "model", 1, 4)
            together = tokens_per_second(url, "model", 8, 32)
            ratios.append(together / alone)
            print(f"round {count}: 8 clients {ratios[-1]:.2f} times one client's", flush=True)
    print(f"median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


def peer(model: Path, rounds: int) -> None:
    """Ours and theirs, without and with their continuous batching, in turns."""
    peers = {"transformers serve": (), "with --continuous-batching": ("--continuous-batching",)}
    for name, flags in peers.items():
        with ours(model) as (url, _), theirs(model, *flags) as (their_url, _):
            try:
                same = complete(url, "model", "warm up", 0) == complete(
                    their_url, str(model), "warm up", 0
                )
            except OSError as problem:
                print(f"{name}: no answer ({problem})")
                continue
            print(f"{name}: {'the same' if same else 'another'} greedy text")
            for clients in (1, 8):
                ratios = []
                for _ in range(rounds):
                    one = tokens_per_second(url, "model", clients, 2 * clients)
                    other = tokens_per_second(their_url, str(model), clients, 2 * clients)
                    ratios.append(one / other)
                spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
                print(
                    f"  {clients} clients: ours {statistics.median(ratios):.2f} times as fast "
                    f"({spread})",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("stress", "throughput", "peer"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    options = parser.parse_args()
    measure = {"stress": stress, "throughput": throughput, "peer": peer}[options.what]
    with tempfile.TemporaryDirectory() as folder:
        measure(write_model(Path(folder), options.layers, options.width), options.rounds)


if __name__ == "__main__":
    main()
