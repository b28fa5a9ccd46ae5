"""Malicious files for the checks: pickles, archives, safetensors, tokenizers, damaged bytes.

The pickles are assembled from opcodes by hand, so that they are the same on every machine and
nothing here imports the pickle module.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from clearformer.text.specs import byte_characters

# --- pickles -------------------------------------------------------------------------------


def text(value: str) -> bytes:
    """A pickled string, in protocol 2."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def call(function: str, *arguments: bytes) -> bytes:
    """A call of `module name` with pickled arguments."""
    module, name = function.split(" ")
    return f"c{module}\n{name}\n".encode() + b"(" + b"".join(arguments) + b"tR"


def calls(marker: Path) -> dict[str, bytes]:
    """Pickled values that would write a marker file when they are unpickled."""
    touch, code = f"touch {marker}", f"open({str(marker)!r}, 'w')"
    module = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    opening = (text(str(marker)), text("w"))
    return {
        "os.system": call("os system", text(touch)),
        "posix.system": call("posix system", text(touch)),
        "os.popen": call("os popen", text(touch)),
        "subprocess.run": call("subprocess getoutput", text(touch)),
        "subprocess.Popen": call(
            "subprocess Popen", b"(" + text("touch") + text(str(marker)) + b"t"
        ),
        "eval": call("builtins eval", text(code)),
        "exec": call("builtins exec", text(module)),
        "python 2 eval": call("__builtin__ eval", text(code)),
        "open": call("builtins open", *opening),
        "io.open": call("io open", *opening),
        "codecs.open": call("codecs open", *opening),
        "Path.touch": call("pathlib Path.touch", call("pathlib Path", text(str(marker)))),
        "runpy": call("runpy _run_code", text(code)),
        "pty.spawn": call("pty spawn", text(touch)),
        "timeit": call("timeit timeit", text(module)),
        "code": call("code interact", text(code)),
        "pickle.loads": call("pickle loads", text(code)),
        "torch.load": call("torch load", text(str(marker))),
        "torch.hub": call("torch.hub load", text(str(marker))),
        "torch.jit": call("torch.jit load", text(str(marker))),
        "torch.save": call("torch save", text("x"), text(str(marker))),
        "numpy.save": call("numpy save", *opening),
        "shutil": call("shutil copyfile", text("/etc/hostname"), text(str(marker))),
        "import": call("importlib import_module", text("antigravity")),
        "getattr": call(
            "builtins getattr", call("builtins __import__", text("os")), text("system")
        ),
        # REDUCE is not the only opcode that calls.
        "build": call("types SimpleNamespace") + b"}" + text("x") + text(touch) + b"sb",
        "instance": b"(" + text(touch) + b"ios\nsystem\n",
        "object": b"(cos\nsystem\n" + text(touch) + b"o",
        "stack global": text("os") + text("system") + b"\x93(" + text(touch) + b"tR",
        "new object": b"csubprocess\nPopen\n(" + text(touch) + b"t\x81",
    }


def as_pickle(value: bytes, protocol: int = 2) -> bytes:
    """A pickled dict with one entry, whose value is given in opcodes."""
    return b"\x80" + bytes([protocol]) + b"}" + text("weight") + value + b"s."


def as_zip(pickled: bytes, storages: Mapping[str, bytes] | None = None) -> bytes:
    """The archive that torch writes: data.pkl beside the tensors, uncompressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for name, data in (storages or {}).items():
            archive.writestr(f"archive/data/{name}", data)
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


def weights_file(tensors: Mapping[str, Tensor]) -> bytes:
    """A valid .bin file of float tensors, as torch saves it."""
    entries, storages = b"", {}
    for number, (name, tensor) in enumerate(tensors.items()):
        storage = (
            (b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(str(number)) + text("cpu"))
            + _number(tensor.numel())
            + b"tQ"
        )
        rebuilt = call(
            "torch._utils _rebuild_tensor_v2",
            storage,
            _number(0),
            _numbers(tensor.shape),
            _numbers(tensor.contiguous().stride()),
            b"\x89",
            call("collections OrderedDict"),
        )
        entries += text(name) + rebuilt + b"s"
        storages[str(number)] = tensor.contiguous().to(torch.float32).numpy().tobytes()
    return as_zip(b"\x80\x02}" + entries + b".", storages)


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(_number(value) for value in values) + b"t"


# --- archives ------------------------------------------------------------------------------

PATTERN = r"a/(pos|neg)/([0-9]+)\.txt"  # the files that the reader of the archives extracts
FITS = "a/pos/1.txt"


def archives(folder: Path) -> Iterator[tuple[str, Path]]:
    """Twelve archives that try to write elsewhere, fill the memory, or never end."""
    outside = "../" * 12 + str(folder / "escaped").lstrip("/")
    members: dict[str, list[tuple[str, bytes | dict[str, object]]]] = {
        "climbing": [(outside, b"x")],
        "absolute": [(str(folder / "escaped"), b"x")],
        "symbolic link": [(FITS, {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})],
        "hard link": [(FITS, {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"})],
        "link, then through it": [
            ("a/pos", {"type": tarfile.SYMTYPE, "linkname": str(folder)}),
            ("a/pos/escaped", b"x"),
        ],
        "device": [(FITS, {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5})],
        "pipe": [(FITS, {"type": tarfile.FIFOTYPE})],
        "same name twice": [(FITS, b"x"), (FITS, b"y")],
    }
    for name, content in members.items():
        yield name, tar(folder / f"{name}.tar.gz", content)
    bomb = folder / "bomb.tar.gz"
    yield "bomb", tar(bomb, [("other", bytes(64 * 2**20)), (FITS, b"x")])
    yield "long name", tar(folder / "long.tar.gz", [("a/" + "x" * (32 * 2**20), b"")])
    cut = folder / "cut.tar.gz"
    whole = tar(cut, [(FITS, bytes(range(256)) * 99)]).read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    yield "cut", cut
    endless = folder / "endless.tar.gz"
    endless.write_bytes(gzip.compress(bytes(64 * 2**20)))
    yield "nothing but zeros", endless


def tar(path: Path, members: list[tuple[str, bytes | dict[str, object]]]) -> Path:
    """A .tar.gz of names, each with its content or with fields of its TarInfo."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                for field, value in content.items():
                    setattr(info, field, value)
                archive.addfile(info)
    return path


# --- safetensors ---------------------------------------------------------------------------


def header(content: str, data: bytes = b"") -> bytes:
    """A safetensors file with any text as its header."""
    return struct.pack("<Q", len(content.encode())) + content.encode() + data


def entry(name: str, dtype: str, shape: str, start: object, end: object) -> str:
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}'


def tensor_files() -> dict[str, bytes]:
    """Safetensors files whose headers do not match their content."""
    huge, one = 2**62, entry("weight", "F32", "[1]", 0, 4)
    return {
        "empty": b"",
        "shorter than its length": b"\x01\x02\x03",
        "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
        "a header longer than the file": struct.pack("<Q", 10**6) + b"{}",
        "no JSON": header("{nothing"),
        "a list": header("[]"),
        "deep": header('{"a":' * 50_000),
        "the same name twice": header(f"{{{one},{one}}}", bytes(4)),
        "overlapping": header(f"{{{one},{entry('b', 'F32', '[1]', 2, 6)}}}", bytes(6)),
        "a hole": header(f"{{{entry('b', 'F32', '[1]', 4, 8)}}}", bytes(8)),
        "a shape of 2^62": header(f"{{{entry('b', 'F32', f'[{huge},{huge}]', 0, 4)}}}", bytes(4)),
        "a negative shape": header(f"{{{entry('b', 'F32', '[-1]', 0, 4)}}}", bytes(4)),
        "fractions": header(f"{{{entry('b', 'F32', '[1.5]', 0, 6)}}}", bytes(6)),
        "a shape that is true": header(f"{{{entry('b', 'F32', '[true]', 0, 4)}}}", bytes(4)),
        "backwards": header(f"{{{entry('b', 'F32', '[1]', 4, 0)}}}", bytes(4)),
        "past the end": header(f"{{{entry('b', 'F32', '[1000]', 0, 4000)}}}", bytes(4)),
        "an unknown type": header(f"{{{entry('b', 'F7', '[1]', 0, 4)}}}", bytes(4)),
        "a number as a name": header('{"b":3}'),
        "rest": header(f"{{{one}}}", bytes(5)),
        "metadata that are not strings": header('{"__metadata__":{"a":[1]}}'),
        "a name of a megabyte": header(f"{{{entry('x' * 2**20, 'F32', '[2]', 0, 4)}}}", bytes(4)),
        "nine axes": header(f"{{{entry('b', 'F32', str([1] * 9), 0, 4)}}}", bytes(4)),
        "not a number": header(f"{{{entry('weight', 'F32', '[1]', 0, 4)}}}", b"\0\0\xc0\x7f"),
    }


# --- tokenizers ----------------------------------------------------------------------------

BYTES = byte_characters()  # the smallest byte-level vocabulary
EVIL_PATTERNS = ("(a+)+$", "(a|a)*b", "(.*)*x", "((a{1,99}){1,99}){1,99}", r"(?=(a+))\1+$")


def split_by(pattern: str) -> dict[str, object]:
    """The pre-tokenizer of a tokenizer.json with a pattern of its own."""
    return {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            },
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ],
    }


# --- damage at random ----------------------------------------------------------------------


def damage_bytes(data: bytes, draw: Callable[[int], int]) -> bytes:
    """A few bytes changed, removed, repeated or inserted; `draw(n)` gives 0 to n - 1."""
    damaged = bytearray(data)
    for _ in range(1 + draw(4)):
        at = draw(len(damaged) + 1)
        match draw(6):
            case 0:
                del damaged[at : at + 1 + draw(16)]
            case 1:
                damaged[at:at] = bytes(draw(256) for _ in range(1 + draw(8)))
            case 2:
                damaged[at:at] = damaged[: draw(64)]
            case 3:
                damaged[at : at + 8] = struct.pack("<Q", 2 ** draw(64))
            case 4 if draw(8) == 0:
                del damaged[at:]
            case _:
                if at < len(damaged):
                    damaged[at] = draw(256)
    return bytes(damaged)


STRANGE: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 1.5, -0.0, math.inf, math.nan, "", "x",
    "\x00", "é" * 50, "../../etc/passwd", [], [[]], {}, {"kind": "x"}, [1, 2], "1", 3,
)  # fmt: skip


def damage_json(value: object, draw: Callable[[int], int]) -> object:
    """One change in a JSON document: another value, or a key removed, added or renamed."""
    if isinstance(value, dict) and value and draw(6):
        key = list(value)[draw(len(value))]
        changed = dict(value)
        match draw(8):
            case 0:
                del changed[key]
            case 1:
                changed[f"{key}x"] = changed.pop(key)
            case 2:
                changed[f"new{draw(9)}"] = STRANGE[draw(len(STRANGE))]
            case _:
                changed[key] = damage_json(value[key], draw)
        return changed
    if isinstance(value, list) and value and draw(4):
        at = draw(len(value))
        return [*value[:at], damage_json(value[at], draw), *value[at + 1 :]]
    return STRANGE[draw(len(STRANGE))]
