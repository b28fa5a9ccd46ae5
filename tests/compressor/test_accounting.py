from clearformer.compressor.accounting import accounts
from clearformer.compressor.codec import compress
from clearformer.compressor.models import weights_size


def test_weights_are_counted_if_shipped(byte_model, text):
    model = byte_model()
    packed = compress(text, model)
    lines = list(accounts(text, packed, model.module))
    now, in_int8 = weights_size(model.module)
    for size in (packed.size, packed.size + now, packed.size + in_int8):
        assert any(f" {size:,} bytes" in line for line in lines)
    assert any(line.startswith("xz -9e") for line in lines)
    assert lines[-1].startswith("the first line compares with the others if the receiver has")


def test_from_scratch_ships_no_weights(text):
    packed = compress(text[:80], "modern-tiny", from_scratch=True, online=True, context=8)
    lines = list(accounts(text[:80], packed, None))
    assert not any("weights " in line for line in lines[:-1])
    assert lines[-1].startswith("no weights are shipped")
