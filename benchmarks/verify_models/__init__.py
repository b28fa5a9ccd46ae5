"""Implementations that bugs are planted in, for benchmarks/verify.py and tests/verification."""
