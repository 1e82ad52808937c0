"""Ways to count n-grams, one file each."""
