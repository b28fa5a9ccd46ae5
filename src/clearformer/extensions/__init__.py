"""Parts beyond the two source documents, as values for core.

Patterns for graphs and pictures, schemes for long contexts, heads of imported checkpoints, recipes
for initial weights: each is one class or function over `core`, as a user would add it.
"""
