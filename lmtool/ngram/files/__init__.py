"""Files of n-gram models and of counts: ARPA, HDF5, count files in the formats of SRILM and Google."""
