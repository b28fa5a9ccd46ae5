"""Training: one step, a run of them, and a state on disk that survives anything.

Nothing here knows what a transformer is: a model is something with `loss(batch)`, which gives
a sum and a count for each objective.
"""
