"""Missing memory, threads or files: one sentence, exit code 2."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from clearformer.cli import resource_errors
from clearformer.cli.resource_errors import require_address_space, resource_error


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (MemoryError(), "out of memory: use a smaller"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
            "out of memory: use",
        ),
        (RuntimeError("can't start new thread"), "no more threads can be started: raise the limit"),
        (
            ImportError("libtorch_cpu.so: failed to map segment from shared object"),
            "out of memory while libraries were loaded: raise the limit (ulimit -v)",
        ),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "too many files are open: raise the"),
        (ImportError("No module named 'sacrebleu'"), None),
        (RuntimeError("a defect"), None),
        (OSError(errno.ENOENT, "no such file"), None),
    ],
)
def test_resource_error_sentences(problem, sentence):
    said = resource_error(problem)
    assert said is None if sentence is None else said.startswith(sentence)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the limit is not kept")
@pytest.mark.parametrize("megabytes", [100, 500])
def test_too_little_address_space_is_one_sentence(megabytes):
    """At 100 MB the import of torch fails, at 500 MB a library ends the process."""
    done = subprocess.run(
        [sys.executable, "-m", "clearformer", "describe", "modern-tiny"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes * 10**6,) * 2),
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f"clearformer: torch does not run in {megabytes} MB of address space, to which this "
        f"process is limited: raise the limit (ulimit -v), 2 GB are enough for small models\n"
    )


def test_no_probe_without_limit(monkeypatch):
    monkeypatch.setattr(resource_errors.subprocess, "run", None)
    for limit in (None, resource_errors.PROBE_BELOW):
        monkeypatch.setattr(resource_errors, "_address_space", lambda limit=limit: limit)
        require_address_space()


@pytest.mark.parametrize("code", [0, 1])
def test_small_limit_is_probed(monkeypatch, code):
    monkeypatch.setattr(resource_errors, "_address_space", lambda: 2 * 10**9)
    done = subprocess.CompletedProcess([], code)
    monkeypatch.setattr(resource_errors.subprocess, "run", lambda *words, **how: done)
    if code == 0:
        require_address_space()
        return
    with pytest.raises(ValueError, match="torch does not run in 2,000 MB of address space"):
        require_address_space()
