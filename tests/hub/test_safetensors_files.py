"""Safetensors files from untrusted sources: valid files are mapped, forged ones rejected."""

import json

import pytest
import torch
from safetensors.torch import save_file

from clearformer.hub import safetensors_files
from clearformer.hub.safetensors_files import SafetensorsFile, inside, open_weights

FLOATS = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def test_reads_every_dtype_without_copy(tmp_path):
    path = tmp_path / "model.safetensors"
    given = {
        str(dtype): torch.arange(12).reshape(3, 4).to(dtype)
        for dtype in safetensors_files.DTYPES.values()
    }
    given["empty"], given["scalar"] = torch.zeros(0, 3), torch.tensor(2.5)
    save_file(given, path, metadata={"a": "b"})
    file = SafetensorsFile(path)
    assert file.metadata == {"a": "b"}
    assert set(file.names()) == set(given)
    for name, tensor in given.items():
        assert file.tensor(name).dtype == tensor.dtype
        assert as_bytes(file.tensor(name)) == as_bytes(tensor), name
        assert file.shape(name) == tuple(tensor.shape)
    one, two = file.tensor("torch.float32"), file.tensor("torch.float32")
    assert one.data_ptr() == two.data_ptr()
    one[0, 0] = 7.0  # a page of our own: the file stays as it was
    assert SafetensorsFile(path).tensor("torch.float32")[0, 0] == 0.0


def as_bytes(tensor):
    """What lies in memory: not every type can be compared."""
    return bytes(tensor.contiguous().untyped_storage())[: tensor.numel() * tensor.element_size()]


# The types of the format that hold no weights that torch could read, and how many bits they have.
UNREAD = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E8M0": 8}


@pytest.mark.parametrize("kind", UNREAD)
def test_rejects_unsupported_dtype(forged, tmp_path, kind):
    size = 8 * UNREAD[kind] // 8
    header = {"a": {"dtype": kind, "shape": [8], "data_offsets": [0, size]}}
    path = forged(tmp_path / "model.safetensors", header, bytes(size))
    with pytest.raises(ValueError, match=f"a has the type '{kind}', which clearformer does not"):
        SafetensorsFile(path)


def test_released_tensor_can_be_read_again(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"x": torch.arange(100_000.0)}, path)
    file = SafetensorsFile(path)
    before = file.tensor("x").clone()
    file.release("x")
    assert file.tensor("x").equal(before)


def test_reads_unaligned_tensor(forged, tmp_path):
    header = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]},
    }
    data = b"\x05" + torch.tensor([1.5]).numpy().tobytes()
    file = SafetensorsFile(forged(tmp_path / "x.safetensors", header, data))
    assert file.tensor("b").tolist() == [1.5]


FORGED = {
    "empty": (b"", b"", 0, "EOF while parsing"),
    "huge header": (b"{}", b"", 2**60, "header too large"),
    "long header": (b"{}", b"", 2**33, "header too large"),
    "header longer than the file": (b"{}", b"", 1000, "invalid header length"),
    "no json": (b"\x80\x04pickle!", b"", None, "invalid UTF-8 in header"),
    "deep": (b"[" * 100_000, b"", None, "invalid JSON in header"),
    "a long number": (b"[" + b"9" * 5000 + b"]", b"", None, "invalid JSON in header"),
    "a list": (b"[]", b"", None, "invalid JSON in header"),
    "twice": (
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        bytes(8),
        None,
        "its header has two entries with the same name",
    ),
    "cut": ({"a": FLOATS}, bytes(4), None, "file not fully covered"),
    "too long": ({"a": FLOATS}, bytes(12), None, "file not fully covered"),
    "overlap": (
        {"a": FLOATS, "b": {**FLOATS, "data_offsets": [4, 12]}}, bytes(12), None,
        "invalid offset for tensor `b`",
    ),
    "same place": ({"a": FLOATS, "b": FLOATS}, bytes(8), None, "invalid offset for tensor"),
    "hole": (
        {"a": FLOATS, "b": {**FLOATS, "data_offsets": [12, 20]}}, bytes(20), None,
        "invalid offset for tensor `b`",
    ),
    "lies": (
        {"a": {**FLOATS, "shape": [10**9, 10**9]}}, bytes(8), None, "overflow computing buffer",
    ),
    "wrong size": ({"a": {**FLOATS, "shape": [3]}}, bytes(8), None, "info about tensor|invalid"),
    "negative": ({"a": {**FLOATS, "shape": [-2, -1]}}, bytes(8), None, "invalid value: integer"),
    "backwards": (
        {"a": {**FLOATS, "data_offsets": [8, 0]}}, bytes(8), None, "invalid offset for tensor `a`",
    ),
    "true": ({"a": {**FLOATS, "shape": [True, 2]}}, bytes(8), None, "invalid type: boolean"),
    "type": ({"a": {**FLOATS, "dtype": "Q4"}}, bytes(8), None, "unknown variant `Q4`"),
    "complex": ({"a": {**FLOATS, "dtype": "C128"}}, bytes(8), None, "unknown variant `C128`"),
    "three": ({"a": {**FLOATS, "data_offsets": [0, 8, 9]}}, bytes(8), None, "invalid length 3"),
    "extra field": (
        {"a": {**FLOATS, "code": "x"}}, bytes(8), None, "a has the unknown fields {'dtype'",
    ),
    "two lines": (
        {"a\nb": {**FLOATS, "dtype": "\x1b[2J"}}, bytes(8), None, r"unknown variant `\\x1b",
    ),
    "metadata": ({"__metadata__": {"a": 1}}, b"", None, "invalid type: integer `1`"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_rejects_forged_header(forged, tmp_path, name):
    header, data, length, sentence = FORGED[name]
    path = forged(tmp_path / "model.safetensors", header, data, length)
    with pytest.raises(ValueError, match="is not a valid safetensors file: .*" + sentence):
        SafetensorsFile(path)


def test_rejects_missing_file(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        SafetensorsFile(tmp_path / "x.safetensors")
    assert open_weights(tmp_path) is None


# --- shards --------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path):
    one, two = {"a": torch.ones(2), "b": torch.zeros(3)}, {"c": torch.arange(4.0)}
    save_file(one, tmp_path / "model-1.safetensors")
    save_file(two, tmp_path / "model-2.safetensors")
    places = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}

    def index(**changes):
        found = {k: v for k, v in {**places, **changes}.items() if v is not None}
        path = tmp_path / "model.safetensors.index.json"
        path.write_text(json.dumps({"metadata": {}, "weight_map": found}))
        return tmp_path

    return index


def test_reads_sharded_files(sharded):
    weights = open_weights(sharded())
    assert sorted(weights.names()) == ["a", "b", "c"]
    assert weights.tensor("c").tolist() == [0, 1, 2, 3]
    assert weights.shape("b") == (3,)
    weights.release("c")


@pytest.mark.parametrize(
    "name", ["../model-2.safetensors", "/etc/passwd", "..", "", "a\\b", "x/model-2.safetensors"]
)
def test_index_may_only_name_files_of_its_folder(sharded, name):
    with pytest.raises(ValueError, match="which is not a plain file name"):
        open_weights(sharded(c=name))


def test_rejects_symlink_out_of_folder(sharded, tmp_path_factory):
    folder = sharded(c="link.safetensors")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret.safetensors"
    (folder / "model-2.safetensors").rename(elsewhere)
    (folder / "link.safetensors").symlink_to(elsewhere)
    with pytest.raises(ValueError, match="is a link out of its folder"):
        open_weights(folder)


def test_follows_symlinks_of_hub_cache(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save_file({"a": torch.ones(2)}, blobs / "123")
    (snapshot / "model.safetensors").symlink_to("../../blobs/123")
    assert open_weights(snapshot).tensor("a").tolist() == [1, 1]


def test_rejects_index_that_does_not_match_files(sharded):
    with pytest.raises(ValueError, match=r"z is listed for model-2.safetensors"):
        open_weights(sharded(z="model-2.safetensors"))
    with pytest.raises(ValueError, match=r"b is not listed but stored in model-1.safetensors"):
        open_weights(sharded(b=None))
    folder = sharded()
    (folder / "model.safetensors.index.json").write_text("[1]")
    with pytest.raises(ValueError, match="has no weight_map from tensors to files"):
        open_weights(folder)


def test_inside_accepts_file_of_folder(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    assert inside(tmp_path, "x.json") == tmp_path / "x.json"
