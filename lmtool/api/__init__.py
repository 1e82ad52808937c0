"""Python functions for the commands; their public names are in `lmtool`."""
