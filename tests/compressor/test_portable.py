import hashlib
import os
import subprocess
import sys

import pytest
import torch

from clearformer.compressor.codec import compress, decompress
from clearformer.compressor.portable import PortableMode

FAMILIES = ["modern", "gpt2", "sparse", "generator", "xl"]
SCRIPT = """
import sys, torch, clearformer as cf
torch.set_num_threads(int(sys.argv[3]))
text = open(sys.argv[2], "rb").read()
sys.stdout.buffer.write(cf.compress(text, sys.argv[1], streams=3, portable=True).data)
"""


@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip_of_every_family(byte_model, text, family):
    model = byte_model(family)
    packed = compress(text[:90], model, streams=2, portable=True)
    assert packed.header.machine is None
    assert decompress(packed.data, model) == text[:90]
    assert abs(packed.code_size - compress(text[:90], model, streams=2).code_size) <= 4


@pytest.mark.parametrize("family", ["modern", "gpt2", "xl"])
def test_logits_are_close_to_model(byte_model, text, family):
    module = byte_model(family).module.double()
    tokens = torch.tensor([list(text[:10])])
    with torch.inference_mode():
        expected = module.head(module.hidden(tokens))
        with PortableMode(module):
            found = module.head(module.hidden(tokens))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_file_does_not_depend_on_instructions_or_threads(byte_model, text, tmp_path):
    """torch's and MKL's kernels for other CPUs of this width, as far as this one can run them."""
    byte_model().save(tmp_path / "run")
    (tmp_path / "text").write_bytes(text[:60])
    expected = compress(text[:60], tmp_path / "run", streams=3, portable=True).data
    for threads, settings in (
        ("1", {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}),
        ("2", {"ATEN_CPU_CAPABILITY": "avx2"}),
    ):
        words = [sys.executable, "-c", SCRIPT, tmp_path / "run", tmp_path / "text", threads]
        environment = {**os.environ, **settings}
        done = subprocess.run(words, env=environment, capture_output=True, check=True)
        assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(expected).digest()


def test_rejects_unsupported_operations_by_name(byte_model, text):
    with pytest.raises(ValueError, match="int8, for which there is no portable arithmetic"):
        compress(text[:60], byte_model().quantize(), portable=True)
    with (
        PortableMode(torch.nn.Identity()),
        pytest.raises(ValueError, match="the operation lgamma, for which there is no portable"),
    ):
        torch.ones(2).lgamma()


def test_replaces_parts_of_composite_operations():
    a, b = (torch.linspace(0, 1, 350, dtype=torch.float64).view(7, 50) for _ in range(2))
    order = torch.arange(49, -1, -1)
    with PortableMode(torch.nn.Identity()), torch.inference_mode():
        one, other = (torch.einsum("ij,kj->ik", a[:, o], b[:, o]) for o in (slice(None), order))
        softmax = torch.nn.functional.softmax(a, -1)
    assert torch.equal(one, other)
    torch.testing.assert_close(softmax, a.softmax(-1))
