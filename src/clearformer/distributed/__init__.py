"""Several processes: process groups, DDP and FSDP2, shards on disk, heartbeats."""
