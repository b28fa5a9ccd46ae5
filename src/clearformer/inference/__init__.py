"""Fast inference: packed weights, int8, huge pages, one-token steps, beams.

Each form gives the same numbers as the plain model of `core`, and is tested against it.
"""
