"""Checks that the reliability goals of docs/reliability.md hold on this machine.

There is one function for each goal. Every check takes its counts as arguments, so that the same
code runs in seconds in the tests, in minutes in `clearformer selftest`, and for as long as it takes
in `make soak`. Only the command line imports this package.
"""
