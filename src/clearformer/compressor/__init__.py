"""Compression of files by a language model: what a model claims, proven by decoding it."""
