"""Checks: one file for each group of the catalogue; each check takes a probe, yields findings."""
