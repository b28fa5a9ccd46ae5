"""Limits of the explorer: sizes, counts and timeouts."""

from dataclasses import dataclass

MAX_TOKENS = 1024  # upper bound of --max-tokens
MAX_NEW_TOKENS = 1000
POOL_ABOVE = 768  # longer texts are sent at half the resolution
MAX_TEXT = 8_000
MAX_RESPONSE_BYTES = 4 * 2**20
MAX_EXPORT_BYTES = 5 * 2**20
MAX_EXPORT_RESPONSES_BYTES = 4 * MAX_EXPORT_BYTES  # before the largest are left out
MAX_EXPORTED = 1_000  # requests of one file: every head of a model, and what is around them
MAX_EXPORTS = 2  # at the same time
EXPORT_SECONDS = 300.0
MAX_STREAMS = 64  # event streams open at the same time: a quarter of the connections
RESPONSE_SECONDS = 120.0  # for a model to answer
THREADS = 8  # for routes that read files
MAX_QUEUE = 8  # calls waiting for a model
MAX_LOADED_MODELS = 4
MAX_CACHED_TRACES = 16  # some pages ask for four at once
MAX_CACHED_TRACE_BYTES = 256 * 2**20
TOP_TOKENS = 200
MAX_POINTS = 2_000  # of a curve
MAX_MAP_POINTS = 160  # of a map of embeddings: more cannot be read
MAX_SENTENCES = 40  # of such a map
MAX_EVENT_BYTES = 64 * 2**10
POLL_SECONDS = 0.25  # so that there are at most 4 metric events a second
SILENT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits that a user may change, within the hard ones."""

    max_tokens: int = 512
    max_text: int = MAX_TEXT
    max_bytes: int = MAX_RESPONSE_BYTES
    max_new_tokens: int = 200

    def __post_init__(self) -> None:
        if not 1 <= self.max_tokens <= MAX_TOKENS:
            raise ValueError(
                f"max-tokens is {self.max_tokens}, but it must be from 1 to {MAX_TOKENS:,}: one "
                f"head of a longer text does not fit into a response"
            )
