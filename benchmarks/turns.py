"""Interleaved measurements of several implementations, each in its own process.

A process sleeps while another one is measured. In one process (`together`) all are
slower: torch and CTranslate2 load the same OpenMP, which stops its threads from waiting actively
once there are more of them than cores.
"""

import argparse
import multiprocessing
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

Act = Callable[..., Any]


class Contestant:
    """An implementation made by `make`, and the time of its calls."""

    def __init__(self, make: Callable[[], Act], options: argparse.Namespace) -> None:
        if options.together:
            self.ask = timed(make(), options.cpu_time)
            return
        fresh = multiprocessing.get_context("spawn")
        here, there = fresh.Pipe()
        arguments = (there, make, options.threads, options.cpu_time)
        self.process = fresh.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        there.close()

        def ask(*question: Any) -> tuple[float, Any]:
            here.send(question)
            seconds, answer = here.recv()
            return seconds, answer

        self.ask = ask

    def end(self) -> None:
        if hasattr(self, "process"):
            self.process.kill()


def options(parser: argparse.ArgumentParser, rounds: int) -> None:
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--together", action="store_true", help="all in one process")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of computing only")


def timed(act: Act, cpu_time: bool) -> Callable[..., tuple[float, Any]]:
    """Call the function and return its time."""
    clock = time.process_time if cpu_time else time.perf_counter

    def ask(*question: Any) -> tuple[float, Any]:
        start = clock()
        answer = act(*question)
        return clock() - start, answer

    return ask


def serve(connection: Any, make: Callable[[], Act], threads: int, cpu_time: bool) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    ask = timed(make(), cpu_time)
    while True:
        connection.send(ask(*connection.recv()))
