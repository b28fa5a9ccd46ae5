"""The HTTP interface, one file for each thing that is asked about."""
