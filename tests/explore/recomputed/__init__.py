"""What the page displays, computed again from the trace, torch and the files of a run.

Every number on the page names its source in `data-source`: a Python expression such as
`weights.self[0][1][5][2]` or `sum(weights.self[0][1][5])`. `Names` has the names that such
expressions use, so that `eval` gives the number that must be displayed. A new name is a method
`_name` of `Names`, or a function in `functions.py`.
"""

from .display import disagreement, displayed
from .names import Names

__all__ = ["Names", "disagreement", "displayed"]
