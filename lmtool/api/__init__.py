"""The commands as Python functions; `lmtool` is their public face."""
