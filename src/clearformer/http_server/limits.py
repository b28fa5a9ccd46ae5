"""Limits of every server: connections, bodies and timeouts."""

MAX_BODY_BYTES = 2**20
MAX_CONNECTIONS = 256
REQUEST_SECONDS = 10.0  # for a request to arrive
STALLED_SECONDS = 60.0  # for a client to read a response
MIN_SECRET = 16  # characters of an access token or an API key
