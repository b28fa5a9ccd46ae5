"""Objectives: for each, its batches, loss, metric, samples, evaluation and verbs."""
