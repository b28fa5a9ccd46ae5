"""How far influence reaches: against paths counted by hand, and against the gradients of a model."""
