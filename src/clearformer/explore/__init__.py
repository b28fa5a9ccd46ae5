"""Seeing inside a model: what it computed, stage by stage, and pictures of it."""
