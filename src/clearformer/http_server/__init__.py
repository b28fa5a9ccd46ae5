"""Parts that the explorer and the API server share: access control, errors, the server."""
