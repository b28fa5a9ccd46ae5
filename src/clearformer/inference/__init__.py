"""A finished model made fast: packed weights, int8, huge pages, the one-token step, beams.

Each form gives the same numbers as the plain model of `core`, and is tested against it.
"""
