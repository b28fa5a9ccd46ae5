"""The command line: one module for each verb, heavy imports only when a verb runs."""
