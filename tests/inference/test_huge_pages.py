"""Moving weights to huge pages does not change them."""

import mmap

import pytest
import torch
from torch import nn

from clearformer.inference import huge_pages
from clearformer.inference.huge_pages import LINE, PAGE, collapse, use_huge_pages


@pytest.fixture
def tied():
    model = nn.Sequential(nn.Embedding(1000, 48), nn.Linear(48, 48), nn.Linear(48, 1000))
    model[2].weight = model[0].weight
    model[1].half()
    return model


@pytest.fixture
def from_the_first_byte(monkeypatch):
    monkeypatch.setattr(huge_pages, "MIN_BYTES", 0)


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no large pages")
def test_weights_are_contiguous_and_unchanged(tied, from_the_first_byte):
    parameters = dict(tied.named_parameters())
    before = {name: weight.clone() for name, weight in tied.state_dict().items()}
    use_huge_pages(tied)
    for name, weight in tied.state_dict().items():
        assert weight.equal(before[name])
        assert weight.dtype == before[name].dtype
    assert tied[2].weight is tied[0].weight
    assert all(parameters[name] is each for name, each in tied.named_parameters())
    assert tied[0].weight.data_ptr() % PAGE == 0
    assert all(each.data_ptr() % LINE == 0 for each in tied.parameters())
    storages = {each.untyped_storage().data_ptr() for each in tied.parameters()}
    assert len(storages) == 1


def test_memory_outlives_module_while_weight_is_referenced(from_the_first_byte):
    linear = nn.Linear(300, 300)
    expected = linear.weight.detach().clone()
    weight = use_huge_pages(linear).weight
    del linear
    torch.full((2000, 2000), 7.0)  # would be written into what had been freed
    assert weight.equal(expected)


def test_small_model_is_not_moved(tied):
    before = [each.data_ptr() for each in tied.parameters()]
    assert [each.data_ptr() for each in use_huge_pages(tied).parameters()] == before


@pytest.mark.parametrize("problem", ["none", "refused"])
def test_nothing_moves_without_huge_pages(problem, tied, from_the_first_byte, monkeypatch):
    if problem == "none":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    else:
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1, raising=False)
    before = [each.data_ptr() for each in tied.parameters()]
    assert [each.data_ptr() for each in use_huge_pages(tied).parameters()] == before


def huge_bytes():
    with open("/proc/self/smaps_rollup") as file:
        (line,) = (each for each in file if each.startswith("AnonHugePages"))
    return int(line.split()[1]) * 1024


def test_packed_matrices_move_in_place(monkeypatch):
    size = 8 * PAGE
    dense = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    sparse = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    content = bytes(range(1, 256)) * (size // 255 + 1)
    dense.write(content[:size])
    sparse.write(b"one page alone")
    monkeypatch.setattr(huge_pages, "MIN_BYTES", size + 1)
    assert not collapse(size)
    before = huge_bytes()
    monkeypatch.setattr(huge_pages, "MIN_BYTES", size)
    if not collapse(size):
        pytest.skip("this system does not collapse pages")
    assert huge_bytes() >= before + size - 2 * PAGE  # the first and last may not be aligned
    assert dense[:] == content[:size]
    # Memory that was never written is not allocated: at most a tenth of a page is.
    after = huge_bytes()
    sparse.madvise(mmap.MADV_DONTNEED)
    assert huge_bytes() == after


def test_regions_of_maps():
    page, end = 0x7F0000000000, 0x7F0000600000
    lines = [
        f"{page:x}-{end:x} rw-p 00000000 00:00 0 ",
        f"{page + 4096:x}-{end:x} rw-p 00000000 00:00 0 [heap]",
        f"{page:x}-{end:x} rw-p 00000000 00:00 0 [stack]",
        f"{page:x}-{end:x} r--p 00000000 00:00 0 ",
        f"{page:x}-{end:x} rw-p 00000000 08:01 77 /lib/library.so",
        f"{page:x}-{page + 4096:x} rw-p 00000000 00:00 0 ",
    ]
    found = list(huge_pages._anonymous("\n".join(lines)))
    assert found == [(page, end), (page + PAGE, end)]
