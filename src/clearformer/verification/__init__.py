"""Verification: names the bug in a transformer that somebody else wrote.

`check.verify` takes a module, `catalogue` lists the bugs. Reading order: findings, signature,
claims, noise, trace, attention, probe, dependence, checks, catalogue, check.
"""
