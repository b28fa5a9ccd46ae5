"""The corpus of malicious files."""

import io
import random

import torch

from clearformer.selftest import malicious_files


def test_thirty_payloads_and_twelve_archives(tmp_path):
    assert len(malicious_files.calls(tmp_path / "marker")) == 30
    assert len(list(malicious_files.archives(tmp_path))) == 12
    assert len(malicious_files.EVIL_PATTERNS) == 5


def test_harmless_weights_file_is_readable_by_torch():
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(1)}
    read = torch.load(io.BytesIO(malicious_files.weights_file(tensors)), weights_only=True)
    assert read.keys() == tensors.keys()
    assert all(read[name].equal(tensors[name]) for name in tensors)


def test_damage_changes_input():
    draw = random.Random(0).randrange
    changed = sum(
        malicious_files.damage_bytes(b"0123456789" * 9, draw) != b"0123456789" * 9
        for _ in range(99)
    )
    assert changed > 80
    document = {"a": [1, 2, {"b": "c"}], "d": 1.5}
    changed = sum(malicious_files.damage_json(document, draw) != document for _ in range(99))
    assert changed > 80
