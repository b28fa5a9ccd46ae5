"""Fast forms of core's kernels, each tested equal to `core.kernels.explicit`."""
