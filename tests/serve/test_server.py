"""The server: names of models, ports, and hosts that others can reach."""

import socket
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

import clearformer as cf
from clearformer.serve.server import make_server, open_models, read_adapters


def test_a_port_that_is_taken_is_an_error(models):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} of 127.0.0.1 is taken: choose another"):
            make_server({"chat": models["chat"]}, port=port)


def test_other_machines_need_keys(models):
    with pytest.raises(ValueError, match=r"host is 0\.0\.0\.0, which other machines can reach"):
        make_server({"chat": models["chat"]}, host="0.0.0.0", port=0)


def test_a_model_has_the_name_of_its_folder(models, tmp_path):
    models["plain"].save(tmp_path / "mine")
    assert list(open_models([tmp_path / "mine"])) == ["mine"]
    with pytest.raises(ValueError, match="two models have the name mine: rename the folder of one"):
        open_models([tmp_path / "mine", tmp_path / "mine"])
    with pytest.raises(ValueError, match="there is no model to serve"):
        open_models([])


# --- adapters --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapted(models, adapter_run, tmp_path_factory):
    """A base and two runs with adapters for it."""
    folder = tmp_path_factory.mktemp("adapted")
    models["chat"].save(folder / "base")
    runs = {
        "sailor": adapter_run(folder / "base", folder / "a", cf.LoRA(rank=2, alpha=4.0), seed=1),
        "farmer": adapter_run(folder / "base", folder / "b", cf.DoRA(rank=3, alpha=6.0), seed=2),
    }
    return folder / "base", runs


def ask(client, name, prompt, **more):
    answer = client.completions.create(
        model=name, prompt=prompt, max_tokens=24, seed=3, temperature=0.7, **more
    )
    return answer.choices[0].text


def test_requests_choose_the_adapter(adapted):
    """Each answer is the one that the adapter's run gives alone, whoever else is asked."""
    base, runs = adapted
    opened = open_models([base], adapters=runs, max_batch=4)
    names = ["base", *runs]
    with make_server(opened, port=0).in_background() as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
        assert [model.id for model in client.models.list()] == names
        prompts = ("ahoy", "the cat sat", "x")
        keys = [(name, prompt) for name in names for prompt in prompts]
        with ThreadPoolExecutor(len(keys)) as pool:
            texts = pool.map(lambda key: ask(client, *key), keys)
            together = dict(zip(keys, texts, strict=True))
        one_by_one = {key: ask(client, *key) for key in together}
        with pytest.raises(openai.NotFoundError, match="this server has base, sailor, farmer"):
            ask(client, "other", "x")
    assert one_by_one == together
    for name, run in {"base": base, **runs}.items():
        model = open_models([run], max_batch=4)[run.name]
        with make_server({"alone": model}, port=0).in_background() as address:
            client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
            for prompt in prompts:
                assert ask(client, "alone", prompt) == together[name, prompt]
    different = {tuple(together[name, prompt] for prompt in prompts) for name in names}
    assert len(different) == 3


def test_adapters_share_the_matrices_of_the_base(adapted):
    base, runs = adapted
    opened = open_models([base], adapters=runs)
    first, *others = (model.module for model in opened.values())
    for other in others:
        assert other.embedding.token is first.embedding.token
        shared = other.stack.blocks[0].attention.project.base
        assert shared is first.stack.blocks[0].attention.project


def test_an_adapter_with_matrices_of_its_own_is_served_whole(adapted, adapter_run, tmp_path):
    base, _ = adapted
    run = adapter_run(base, tmp_path / "int8", cf.LoRA(rank=2, base="int8"))
    model = open_models([base], adapters={"own": run})["own"]
    assert "is served with matrices of its own, which take more memory" in model.notes[-1]


def test_adapters_that_cannot_be_served(adapted, models, tmp_path):
    base, runs = adapted
    models["plain"].save(tmp_path / "plain")
    with pytest.raises(ValueError, match=r"is an adapter for .*, not for .*plain"):
        open_models([tmp_path / "plain"], adapters=runs)
    with pytest.raises(ValueError, match="adapters are for one model"):
        open_models([base, tmp_path / "plain"], adapters=runs)
    with pytest.raises(ValueError, match="two models have the name base: give the adapter another"):
        open_models([base], adapters={"base": runs["sailor"]})
    with pytest.raises(ValueError, match="--adapter needs float32 weights"):
        open_models([base], adapters=runs, weights="int8")
    with pytest.raises(ValueError, match="is not an adapter: serve it as a model of its own"):
        open_models([base], adapters={"x": tmp_path / "plain"})


def test_adapters_on_the_command_line():
    assert read_adapters(["a=runs/a", "b=runs/b=c"]) == {"a": "runs/a", "b": "runs/b=c"}
    for words in (["a"], ["=x"], ["a="], ["a=x", "a=y"]):
        with pytest.raises(ValueError, match="but it must be NAME=RUN, each name once"):
            read_adapters(words)
