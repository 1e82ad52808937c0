"""Runs become one page to read: `lmtool report`."""
