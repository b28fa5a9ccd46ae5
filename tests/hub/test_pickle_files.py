"""Pickle files: only tensors are read, whatever else they contain."""

import io
import os
import zipfile

import pytest
import torch

from clearformer.hub.pickle_files import PickleFile


class Payload:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_reads_tensors(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.arange(6.0).reshape(2, 3)}, path)
    file = PickleFile(path)
    assert list(file.names()) == ["a"]
    assert file.shape("a") == (2, 3)
    assert file.tensor("a").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("zipped", [True, False])
def test_no_code_runs(tmp_path, zipped):
    marker = tmp_path / "marker"
    path = tmp_path / "pytorch_model.bin"
    content = {"a": torch.ones(1), "b": Payload(f"touch {marker}")}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match="contains more than weights, and nothing else is read"):
        PickleFile(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "content", [[torch.ones(1)], {"a": {"b": torch.ones(1)}}, {1: torch.ones(1)}]
)
def test_rejects_content_that_is_not_a_dict_of_tensors(tmp_path, content):
    path = tmp_path / "x.bin"
    torch.save(content, path)
    with pytest.raises(ValueError, match="is not a dictionary from names to tensors"):
        PickleFile(path)


def test_rejects_compressed_archive(tmp_path):
    path = tmp_path / "x.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(10**6))
    with pytest.raises(ValueError, match=r"contains more than weights.*\(OverflowError\)"):
        PickleFile(path)


def test_rejects_garbage(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(io.BytesIO(b"not a pickle at all").getvalue())
    with pytest.raises(ValueError, match="contains more than weights"):
        PickleFile(path)


@pytest.mark.parametrize(
    ("tensor", "sentence"),
    [
        (torch.eye(3).to_sparse(), "a is sparse or has no data"),
        (torch.empty(3, device="meta"), "a is sparse or has no data"),
        (torch.zeros(1).expand(2**24, 2**14), r"a has shape .*, but fewer elements in the file"),
    ],
)
def test_rejects_unusual_tensors(tmp_path, tensor, sentence):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": tensor}, path)
    with pytest.raises(ValueError, match=sentence):
        PickleFile(path)
