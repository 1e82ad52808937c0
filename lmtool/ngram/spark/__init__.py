"""Counting and estimation on Spark: for text that one machine does not hold.

Step 1: the types of the text and how often each occurs, of which the driver chooses the vocabulary (text.py).
Step 2: the n-grams of the highest order, counted in pieces where the text is, brought together by the word before the
last (tasks.py): all n-grams of a context are in one partition then, and so are all their suffixes down to the 2-gram.
Step 3: each partition makes the lower orders of its n-grams (levels.py) and estimates them (shares.py).
Entropy pruning, if any: by the first two words for what stays (prune.py), by the word before the last for new weights
(weights.py).
Step 4: sorted by Spark, they stream to the driver, which builds the ordinary files (assemble.py).

What a step has finished lies in a folder that the driver and the workers see (stages.py), so that it is not done again.
"""
