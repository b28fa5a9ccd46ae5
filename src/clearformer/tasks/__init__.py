"""Objectives: for each, its batches, loss, metric and samples."""
