"""Limits of the API server: sizes, counts and timeouts."""

from dataclasses import dataclass

from clearformer.arguments import require_int, require_number

MAX_BODY_BYTES = 8 * 2**20
MAX_CONNECTIONS = 2048
MAX_PROMPT = 2**20  # characters, or token ids
MAX_TEXTS = 2048  # of one request for embeddings, classes, fillings or translations
CALL_ITEMS = 32  # computed at a time, so that other requests do not wait for all of them
MAX_CHOICES = 128  # texts of one request for completions
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_CONSTRAINTS = 32  # compiled schemas that each model keeps
CLOSE_SECONDS = 10.0  # for a step or a call to end, when the server closes
THREADS = 8  # threads that encode prompts and compile schemas


@dataclass(frozen=True, kw_only=True)
class ServeLimits:
    """The limits that a user may change."""

    max_batch: int = 16
    """Largest number of texts generated in one batch."""
    max_queue: int = 256
    """Largest number of waiting texts; further ones get status 429."""
    max_tokens: int = 4096
    """Largest max_tokens that a request may ask for."""
    timeout: float = 600.0
    """Time limit of a request, in seconds."""
    drain_seconds: float = 30.0
    """Time for running requests to finish after SIGTERM, in seconds."""

    def __post_init__(self) -> None:
        require_int("max_batch", self.max_batch, 1, 1024)
        require_int("max_queue", self.max_queue, 0, 100_000)
        require_int("max_tokens", self.max_tokens, 1, 2**20)
        require_number("timeout", self.timeout, 0.001, 86_400)
        require_number("drain_seconds", self.drain_seconds, 0, 86_400)
