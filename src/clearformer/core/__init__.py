"""The mathematics. Read in this order: basic, patterns, kernels, positions, cache, attention,
block, stack, embedding, heads, model, init. Nothing here imports anything but torch.
"""
