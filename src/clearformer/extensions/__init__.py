"""Parts that go beyond the two seed documents, in the slots that core leaves open.

Patterns for graphs and pictures, schemes for long contexts, heads of imported checkpoints, recipes
for initial weights: each is one class or function over `core`, as a user would add it.
"""
