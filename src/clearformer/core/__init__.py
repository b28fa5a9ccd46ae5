"""The mathematics of transformers, in torch alone.

Read the files in this order: basic, patterns, masks, kernels, angles, positions, cache, attention,
block, stack, embedding, heads, model, init. A file imports only files before it.
"""

READING_ORDER = (
    "basic", "patterns", "masks", "kernels", "angles", "positions", "cache", "attention", "block",
    "stack", "embedding", "heads", "model", "init",
)  # fmt: skip
