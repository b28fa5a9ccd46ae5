"""Moving weights to huge pages does not change them."""

import io
import mmap

import numpy as np
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


START = 0x7F0000000000
PRESENT = 2**63  # in an entry of /proc/self/pagemap


def pagemap(*shares):
    """Entries of huge pages from START on, each with this share of its ordinary pages present."""
    many = PAGE // huge_pages.SMALL
    present = [n < share * many for share in shares for n in range(many)]
    skipped = START // huge_pages.SMALL * 8
    return PageMap(np.array(present, np.uint64) * np.uint64(PRESENT), skipped)


class PageMap(io.BytesIO):
    """A file with these entries after the bytes that are skipped."""

    def __init__(self, entries, skipped):
        super().__init__(entries.tobytes())
        self.skipped = skipped

    def seek(self, place):
        return super().seek(place - self.skipped)


def test_dense_runs():
    pages = pagemap(0.5, 1.0, 0.95, 0.0, 0.89, 1.0)
    found = list(huge_pages._dense(pages, START, START + 6 * PAGE))
    assert found == [(START + PAGE, START + 3 * PAGE), (START + 5 * PAGE, START + 6 * PAGE)]


def test_dense_memory_is_collapsed(monkeypatch):
    maps = f"{START:x}-{START + 4 * PAGE:x} rw-p 00000000 00:00 0 \n"
    files = {
        "/proc/self/maps": lambda: io.StringIO(maps),
        "/proc/self/pagemap": lambda: pagemap(1.0, 0.1, 1.0, 1.0),
    }
    monkeypatch.setattr(huge_pages, "open", lambda path, *how: files[path](), raising=False)
    asked, results = [], [-1, 0]

    class Library:
        @staticmethod
        def madvise(start, length, advice):
            asked.append((start.value, length.value, advice))
            return results.pop(0)

    monkeypatch.setattr(huge_pages.ctypes, "CDLL", lambda *names, **options: Library)
    assert not collapse(huge_pages.MIN_BYTES - 1)
    assert asked == []
    assert collapse(huge_pages.MIN_BYTES)  # the second run was moved
    advice = huge_pages.MADV_COLLAPSE
    assert asked == [(START, PAGE, advice), (START + 2 * PAGE, 2 * PAGE, advice)]


def test_collapsed_memory_keeps_its_content():
    """Whether this system can move it or not."""
    memory = torch.arange(PAGE)  # 8 bytes each
    expected = memory.clone()
    collapse(huge_pages.MIN_BYTES)
    assert torch.equal(memory, expected)


def test_nothing_is_collapsed_where_there_is_no_proc(monkeypatch):
    """On Windows, where no library can be opened without a name."""

    def missing(*arguments, **options):
        raise FileNotFoundError

    monkeypatch.setattr(huge_pages, "open", missing, raising=False)
    monkeypatch.setattr(huge_pages.ctypes, "CDLL", pytest.fail)
    assert not collapse(huge_pages.MIN_BYTES)


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
