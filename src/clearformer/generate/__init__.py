"""Text generation: sampling, beam search, constraints and streaming."""
