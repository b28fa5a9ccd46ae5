"""Wall time beside processor time, for a machine that does other work as well."""

import time

Clocks = tuple[float, float]


def clocks() -> Clocks:
    """Wall time and processor time."""
    return time.perf_counter(), time.process_time()


def since(before: Clocks) -> Clocks:
    wall, own = clocks()
    return wall - before[0], own - before[1]
