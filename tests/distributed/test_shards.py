"""Tensor shards on disk: no pickle, and readable by a single process."""

import os

import pytest
import torch

from clearformer.distributed import process_group, shards

SHAPES = {"a.exp_avg": (5, 3), "b.exp_avg": (1,), "c.momentum_buffer": (4, 2)}


def whole():
    return {
        name: torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape) + 0.5
        for name, shape in SHAPES.items()
    }


def write(folder):
    """Each of two ranks has a shard; one of them has no part of b."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    group = process_group.join(os.environ, 300)
    mesh = init_device_mesh("cpu", (2,))
    parts = {name: distribute_tensor(each, mesh, [Shard(0)]) for name, each in whole().items()}
    shards.write(folder, parts)
    found = shards.read(folder, lambda name, shape: parts[name])
    same = all(found[name].to_local().equal(parts[name].to_local()) for name in parts)
    refused = ""
    try:
        shards.write(folder / "a.txt" if group.is_main else folder, parts)
    except OSError as problem:
        refused = str(problem)
    group.heartbeat.stop()
    return [same, refused]


def test_shards_written_by_two_ranks_are_read_by_one(tmp_path, several):
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "a.txt").write_text("in the way")
    found = several.run(2, write, tmp_path, folder)
    assert [same for same, _ in found] == [True, True]
    assert all("could not be written" in refused for _, refused in found)
    read = shards.read(folder, lambda name, shape: torch.empty(shape))
    assert {name: tuple(each.shape) for name, each in read.items()} == SHAPES
    for name, each in whole().items():
        assert read[name].equal(each), name
    for path in folder.glob("*.safetensors"):
        size = int.from_bytes(path.read_bytes()[:8], "little")
        assert path.read_bytes()[8:9] == b"{", "JSON follows the length, and nothing else"
        assert size < 10_000
    assert not (folder / ".metadata").exists(), "torch's own metadata is a pickle"


def test_rejects_damaged_shard(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0 not it ")
    with pytest.raises(Exception, match=r"header|JSON"):
        shards.read(tmp_path, lambda name, shape: torch.empty(shape))
