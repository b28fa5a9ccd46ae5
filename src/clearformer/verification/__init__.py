"""Verification: finds known bugs in transformer code.

`check.verify` takes a module, `catalogue` lists the bugs. Reading order: findings, signature,
claims, noise, trace, attention, probe, dependence, checks, catalogue, check.
"""
