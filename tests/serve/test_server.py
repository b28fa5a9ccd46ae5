"""The server: names of models, ports, and hosts that others can reach."""

import socket

import pytest

from clearformer.serve.server import make_server, open_models


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
    with pytest.raises(ValueError, match="two models are called mine: rename the folder of one"):
        open_models([tmp_path / "mine", tmp_path / "mine"])
    with pytest.raises(ValueError, match="there is no model to serve"):
        open_models([])
