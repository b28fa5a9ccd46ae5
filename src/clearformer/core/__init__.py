"""The mathematics of transformers, in torch alone.

Read the files in this order: basic, patterns, masks, kernels, positions, cache, attention,
block, stack, embedding, heads, model, init, generate. A file imports only files before it.
"""

READING_ORDER = (
    "basic", "patterns", "masks", "kernels", "positions", "cache", "attention", "block",
    "stack", "embedding", "heads", "model", "init", "generate",
)  # fmt: skip
