"""Files of n-gram models: ARPA and HDF5."""
