"""Every limit of the explorer, in one place; the error that applies one names it."""

from dataclasses import dataclass, replace

MOST_TOKENS = 1024  # what --max-tokens may ask for
MOST_NEW_TOKENS = 1000
POOLED_FROM = 768  # tokens from which a whole matrix is sent at half its size
LONGEST_TEXT = 8_000
LARGEST_BODY = 2**20
LARGEST_RESPONSE = 4 * 2**20
LARGEST_EXPORT = 5 * 2**20
GATHERED = 4 * LARGEST_EXPORT  # bytes of all answers for a file, before the largest are left out
EXPORTS = 2  # files that are made at the same time
EXPORT_SECONDS = 300.0  # in which a file must be complete
STREAMS = 64  # of events that are open at the same time: a quarter of the connections
CONNECTIONS = 256
REQUEST_SECONDS = 10.0  # in which a request must have arrived
ANSWER_SECONDS = 120.0  # in which a model must have answered
STALLED_SECONDS = 60.0  # for which a client may leave an answer unread
THREADS = 8  # for routes that look at files; the others wait in line
QUEUE = 8  # calls that wait for a model
OPEN_MODELS = 4
KEPT_TRACES = 8
KEPT_TRACE_BYTES = 256 * 2**20
TOP_TOKENS = 200
POINTS = 2_000  # of a curve
EVENT_BYTES = 64 * 2**10
POLL_SECONDS = 0.25  # so that there are at most 4 metric events a second
SILENT_SECONDS = 60.0
SHORTEST_TOKEN = 16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Those that a user may move, within the hard ones."""

    max_tokens: int = 512
    max_text: int = LONGEST_TEXT
    max_bytes: int = LARGEST_RESPONSE
    max_new_tokens: int = 200

    def __post_init__(self) -> None:
        if not 1 <= self.max_tokens <= MOST_TOKENS:
            raise ValueError(
                f"max-tokens is {self.max_tokens}, but it must be from 1 to {MOST_TOKENS:,}: one "
                f"head of more would not fit into an answer"
            )


def with_tokens(count: int) -> Limits:
    return replace(Limits(), max_tokens=count)
