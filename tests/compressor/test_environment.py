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
    try:
        with environment.fixed(3):
            assert torch.get_num_threads() == 3
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.are_deterministic_algorithms_enabled()
            assert not torch.utils.deterministic.fill_uninitialized_memory
        assert torch.get_num_threads() == 1
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.set_float32_matmul_precision("highest")
