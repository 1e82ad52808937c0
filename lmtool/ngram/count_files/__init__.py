"""N-grams with their counts in files: SRILM's text format, Google's folders, and Parquet."""
