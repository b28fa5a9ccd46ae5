import pytest

from clearformer.compressor.environment import cpu
from clearformer.compressor.packing import Reader, Writer


@pytest.mark.parametrize("value", [0, 127, 128, 2**40, 2**63 - 1])
def test_numbers_round_trip(value):
    assert Reader(Writer().number(value).data).number("n", 0, 2**63) == value


@pytest.mark.parametrize("text", ["2.13.0+cpu", "2.13.0", "constriction 0.5.0", "1.0", "01.2.3"])
def test_versions_round_trip(text):
    assert Reader(Writer().version(text).data).version() == text


@pytest.mark.parametrize(
    "text", [cpu(), "", "m68k", "x86_64 a b", "avx x86_64 ?/?/? NO", "avx avx"]
)
def test_descriptions_of_a_cpu_round_trip(text):
    assert Reader(Writer().words(text).data).words() == text


def test_known_versions_and_cpus_are_short():
    assert len(Writer().version("2.13.0+cpu").data) == 4
    assert len(Writer().words("x86_64 AuthenticAMD 26/2/1 AVX512 sse4_2 avx avx2 fma").data) == 7


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 12])
def test_rejects_numbers_without_end(data):
    with pytest.raises(ValueError, match=r"ends too early|too large"):
        Reader(data).number("n", 0, 2**63)
