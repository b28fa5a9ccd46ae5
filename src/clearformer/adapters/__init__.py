"""Adapters: low-rank updates of frozen matrices, put in the place of a finished model's matrices.

Reading order: `frozen`, `low_rank`, `targets`, `attach`, `shared_base`.
"""
