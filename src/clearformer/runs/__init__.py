"""A run on disk: the folder, its lock, checkpoints, metrics and card, and the run itself."""
