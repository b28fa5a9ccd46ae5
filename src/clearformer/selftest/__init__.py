"""The promises that can be kept on this machine, kept: one function for each goal.

Goals and their numbers are those of docs/reliability.md. Every check takes its counts as
arguments, so that the same code runs in seconds with the tests, in minutes for a user
(`clearformer selftest`) and for as long as it takes (`make soak`). Only the command line
imports this room.
"""
