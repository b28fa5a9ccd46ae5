"""Claims about the models after the block: chapters 10 to 16 of docs/book (see claims.py)."""

from claim import Claim

CLAIMS: tuple[Claim, ...] = ()
