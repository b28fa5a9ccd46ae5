"""What a run will need, before it runs: memory, time, several GPUs."""
