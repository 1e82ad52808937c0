"""Runs become one page: `lmtool report`."""
