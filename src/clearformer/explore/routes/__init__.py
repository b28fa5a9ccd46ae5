"""HTTP routes, one file for each topic."""
