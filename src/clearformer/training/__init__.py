"""Training: one optimizer step and its optimizers, schedules, precision and loss scaling.

A model is anything with `loss(batch)`, which returns a sum and a count for each objective.
"""
