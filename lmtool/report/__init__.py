"""The page of pictures and tables of `lmtool report`."""
