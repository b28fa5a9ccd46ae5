"""Checkpoints of other tools, in and out: one reversible table of names for each family."""
