"""Lossless file compression with a language model, and proofs of its bits per byte by decoding."""
