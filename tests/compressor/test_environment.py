import torch

from clearformer.compressor import environment


def test_cpu_description_is_one_line():
    words = environment.cpu().split()
    assert torch.backends.cpu.get_cpu_capability().split()[0] in words
    assert "\n" not in environment.cpu()


def test_coder_version():
    assert environment.coder().startswith("constriction ")


def test_fixed_sets_and_restores_settings():
    torch.set_float32_matmul_precision("high")
    torch.set_deterministic_debug_mode("warn")
    try:
        with environment.fixed(3):
            assert torch.get_num_threads() == 3
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.get_deterministic_debug_mode() == 2  # an error, not a warning
            assert not torch.utils.deterministic.fill_uninitialized_memory
        assert torch.get_num_threads() == 1
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_deterministic_debug_mode() == 1
        assert torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_deterministic_debug_mode("default")
