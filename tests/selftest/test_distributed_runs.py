"""G12 and G13 in a small dose; tests/cli/test_launch.py has more."""

import ipaddress
import os
import socket
from pathlib import Path

import pytest

from clearformer.selftest import distributed_runs
from clearformer.selftest.processes import Missed


def test_f32_g13_successful_run_exits_with_zero(tmp_path):
    told = distributed_runs.clean_exit(tmp_path, count=1)
    assert told == "1 of 1 runs of 2 processes exited with 0, and listened on loopback only"


class Ended:
    """A launcher that has left at once."""

    pid = 0

    def __init__(self, code):
        self.returncode = code

    def poll(self):
        return self.returncode


def test_failed_run_fails_goal(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed_runs, "_launch", lambda *words: Ended(1))
    with pytest.raises(Missed, match="ddp: run 0 ended with exit code 1"):
        distributed_runs.clean_exit(tmp_path, count=1)


def test_run_listening_on_network_fails_goal(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed_runs, "_launch", lambda *words: Ended(None))
    monkeypatch.setattr(
        distributed_runs, "listening", lambda pid: [ipaddress.ip_address("0.0.0.0")]
    )
    with pytest.raises(Missed, match=r"ddp: run 0 listens on .*0\.0\.0\.0"):
        distributed_runs.clean_exit(tmp_path, count=1)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_listening_finds_sockets(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"there is no {address} here")
    # Other tests may have a server in this process.
    wanted = ipaddress.ip_address(address)
    with server:
        found = distributed_runs.listening(os.getpid()).count(wanted)
    assert found == distributed_runs.listening(os.getpid()).count(wanted) + 1
