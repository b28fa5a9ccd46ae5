"""Checkpoints of other tools: import and export, one reversible table of names per family."""
