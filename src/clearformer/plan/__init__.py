"""Memory and time that a run will need, on this machine or on several GPUs."""
