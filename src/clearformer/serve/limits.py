"""Limits of the API server: sizes, counts and timeouts."""

from dataclasses import dataclass

from clearformer.arguments import require_int, require_number

MAX_BODY_BYTES = 8 * 2**20
MAX_CONNECTIONS = 2048
MAX_PROMPT = 2**20  # characters, or token ids
MAX_TEXTS = 2048  # of one request for embeddings, classes, fillings or translations
CALL_ITEMS = 32  # of these that are computed at a time, so that others do not wait for all
MAX_CHOICES = 128  # texts of one request for completions
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_CONSTRAINTS = 32  # compiled schemas that each model keeps
CLOSE_SECONDS = 10.0  # for a step or a call to end, when the server closes
THREADS = 8  # that encode prompts and compile schemas


@dataclass(frozen=True, kw_only=True)
class ServeLimits:
    """The limits that a user may change."""

    max_batch: int = 16
    """Texts that a model generates side by side."""
    max_queue: int = 256
    """Texts that wait for a place; more are refused with 429."""
    max_tokens: int = 4096
    """Largest max_tokens of a request."""
    timeout: float = 600.0
    """Seconds for one request."""
    drain_seconds: float = 30.0
    """Seconds for requests in progress to end, after SIGTERM."""

    def __post_init__(self) -> None:
        require_int("max_batch", self.max_batch, 1, 1024)
        require_int("max_queue", self.max_queue, 0, 100_000)
        require_int("max_tokens", self.max_tokens, 1, 2**20)
        require_number("timeout", self.timeout, 0.001, 86_400)
        require_number("drain_seconds", self.drain_seconds, 0, 86_400)
