"""A tiny seeded model of every family, written as runs, and a server on them.

`python tests/explore/models.py [--port 8765]` serves them until Ctrl-C.
"""

import dataclasses
import http.client
import json
import math
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import torch

from clearformer import config as c
from clearformer.builder import build, outline
from clearformer.config import to_json
from clearformer.explore.app import create_app
from clearformer.explore.library import Library
from clearformer.explore.server import Server
from clearformer.families import preset
from clearformer.families.recipes import recipe
from clearformer.runs import checkpoint, state
from clearformer.text import sha256, train

TEXT = (
    "the cat sat on the mat and the dog sat on the log . to be or not to be , that is the "
    "question . a good film , a bad end ; one two three four five six seven eight nine ten . "
)
SIZES = {"layers": 2, "width": 16, "heads": 2, "hidden": 32, "length": 64, "dropout": c.Dropout()}
FAMILIES = {
    "generator": ("characters", {}),
    "gpt2": ("bpe", {}),
    "bert": ("wordpiece", {"head": c.MaskedToken(), "segments": 2}),
    "classifier": ("words", {"head": c.Classifier(names=("negative", "positive"))}),
    "original": ("bpe", {"decoder_layers": 2}),
    "xl": ("characters", {"length": 8, "cache": c.HiddenMemory(length=8)}),
    "sparse": (
        "characters",
        {
            "patterns": (
                c.Causal() & c.Local(window=4),
                c.Causal() & c.Strided(stride=4),
            )
        },
    ),
    "modern": ("bytes", {"key_heads": 1}),
}
VOCABULARIES = {"bpe": 300, "wordpiece": 120, "words": 60}


def tokenizer_of(kind):
    return train(kind, [TEXT] * 3, VOCABULARIES.get(kind))


def config_of(family, tokenizer, changes):
    config = preset(family)
    own = {"vocabulary": tokenizer.size, "name": f"{family}-tiny"}
    if family == "original":
        own["vocabulary"] = tokenizer.size + 2  # and start and end token, as in training
    if family == "classifier":
        own["neighbours"] = c.Neighbours(buckets=50)
    return dataclasses.replace(config, **{**SIZES, **own, **changes})


def scramble(model, seed):
    """Randomize the weights, so that attention is not uniform."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.3 * noise)
    return model


def write_run(folder, config, model, tokenizer, steps=(0,), metrics=True):
    """A run as the trainer leaves it, with a checkpoint for each of the steps."""
    data, how = recipe(config if config.name != "original-tiny" else preset("original"))
    # Every tiny model is one of a few steps.
    how = dataclasses.replace(how, minutes=None, epochs=None, steps=max(steps) or 1)
    data = dataclasses.replace(data, tokenizer=tokenizer.kind, vocabulary=None)
    generation = c.GenerationDefaults()
    if config.vocabulary == tokenizer.size + 2:
        generation = c.GenerationDefaults(start_id=tokenizer.size + 1, end_ids=(tokenizer.size,))
    run = c.RunConfig(model=config, data=data, train=how, generation=generation)
    folder.mkdir(parents=True)
    facts = {"tokenizer": sha256(tokenizer), "tied": state.tied(outline(config))}
    for step in steps:
        tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
        if step != max(steps):
            tensors = {name: 0.8 * tensor for name, tensor in tensors.items()}
        checkpoint.write(
            folder / "checkpoints",
            step,
            {"model.safetensors": tensors},
            {
                "config.json": to_json(run),
                "tokenizer.json": tokenizer.to_json(),
                "state.json": {"best": None, "step": step},
            },
            facts,
        )
    (folder / "config.json").write_text(json.dumps(to_json(run)))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer.to_json()))
    if metrics:
        write_metrics(folder, 20, end=True)
    return folder


def write_metrics(folder, steps, start=1, end=False):
    """Lines as the trainer appends them."""
    with (folder / "metrics.jsonl").open("a") as file:
        for step in range(start, start + steps):
            record = {"step": step, "loss": 3 / math.sqrt(step), "lr": 1e-3, "gradient_norm": 1.0}
            record |= {"tokens": 512 * step, "seconds": 0.1 * step, "progress": step / 100}
            file.write(json.dumps(record) + "\n")
            if step % 10 == 0:
                told = {"event": "evaluation", "step": step, "best": True, "loss": 2.9 / step**0.5}
                file.write(json.dumps({**told, "bits_per_byte": 4 / step**0.5}) + "\n")
                with (folder / "samples.jsonl").open("a") as samples:
                    samples.write(json.dumps({"step": step, "text": f"sample of {step}"}) + "\n")
        if end:
            last = {"event": "end", "step": start + steps - 1, "reason": "finished", "exit": 0}
            file.write(json.dumps(last) + "\n")


def write_all(root):
    """Every family, one with NaN among its weights, and a GPT-2 of 12 layers and 12 heads."""
    for number, (family, (kind, changes)) in enumerate(FAMILIES.items()):
        tokenizer = tokenizer_of(kind)
        config = config_of(family, tokenizer, changes)
        model = scramble(build(config, seed=number), number)
        steps = (10, 20) if family == "gpt2" else (20,)
        write_run(root / family, config, model, tokenizer, steps)
    tokenizer = tokenizer_of("characters")
    config = config_of("gpt2", tokenizer, {})
    model = scramble(build(config, seed=9), 9)
    with torch.no_grad():
        model.stack.blocks[1].attention.project.weight[0, :3] = math.nan
    write_run(root / "nan", config, model, tokenizer, metrics=False)
    config = dataclasses.replace(config, layers=12, heads=12, width=96, hidden=96)
    write_run(root / "twelve", config, scramble(build(config, seed=3), 3), tokenizer, metrics=False)
    return root


@contextmanager
def serving(root, port=0, **settings):
    """A server in a thread, with its address, its library and its models."""
    library = Library([root])
    app = create_app(library, **settings)
    with Server(app, "127.0.0.1", port).in_background() as url:
        yield SimpleNamespace(
            url=url,
            library=library,
            app=app,
            runs=root,
            models=Models(library),
            client=Client(url),
        )
    library.close()


class Client:
    """Sends requests to a server over HTTP, like a page."""

    def __init__(self, url):
        self.place = urlsplit(url).netloc

    def ask(self, method, path, body=None, headers=None, raw=None):
        connection = http.client.HTTPConnection(self.place, timeout=300)
        try:
            data = raw if raw is not None else None if body is None else json.dumps(body).encode()
            own = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, path, data, {**own, **(headers or {})})
            answer = connection.getresponse()
            return SimpleNamespace(
                status=answer.status, headers=dict(answer.headers), body=answer.read()
            )
        finally:
            connection.close()

    def get(self, path, status=200):
        answer = self.ask("GET", path)
        assert answer.status == status, answer.body[:500]
        return json.loads(answer.body)

    def post(self, path, body, status=200):
        answer = self.ask("POST", path, body)
        assert answer.status == status, answer.body[:500]
        return json.loads(answer.body)

    def stream(self, path, body=None, headers=None):
        """A stream of events that has begun: its connection, to be closed, and its answer."""
        connection = http.client.HTTPConnection(self.place, timeout=300)
        own = {"Content-Type": "application/json"} if body is not None else {}
        data = None if body is None else json.dumps(body)
        connection.request(
            "GET" if body is None else "POST", path, data, {**own, **(headers or {})}
        )
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return connection, answer

    def events(self, path, body=None, most=1000, headers=None):
        """Events of a stream: (name, data, id); the connection is closed after `most`."""
        connection, answer = self.stream(path, body, headers)
        found, event = [], {}
        try:
            while len(found) < most:
                line = answer.readline().decode()
                if not line:
                    break
                name, _, value = line.rstrip("\n").partition(": ")
                if name:
                    event[name] = value
                elif "event" in event:
                    found.append((event["event"], json.loads(event["data"]), event.get("id")))
                    event = {}
        finally:
            answer.close()
            connection.close()
        return found


class Models(dict):
    """Opened models by id, loaded on demand."""

    def __init__(self, library):
        self.library = library

    def __missing__(self, id):
        entry = self.library.entry(id)
        checkpoint_id = self.library.checkpoint(entry, None)
        self[id] = entry.worker.submit(lambda: entry.load(checkpoint_id)).result()
        return self[id]


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 8765
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place, serving(write_all(Path(place)), port) as server:
        print(server.url, server.runs, flush=True)
        try:
            while True:
                __import__("time").sleep(1)
        except KeyboardInterrupt:
            pass
