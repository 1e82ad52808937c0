"""Counting and estimation on Spark, for text that does not fit on one machine.

Step 1: count the types of the text; the driver chooses the vocabulary from them (_text.py).
Step 2: count the n-grams of the highest order in pieces where the text lies, and bring them together by the word before
the last (_tasks.py): a partition then has all n-grams of a context, and all their suffixes down to the 2-gram.
Step 3: each partition derives the lower orders of its n-grams (_levels.py) and estimates them (_shares.py). For entropy
pruning they are brought together by their first two words, and what stays by the word before the last (_pruning.py).
Step 4: sorted by Spark, the n-grams stream to the driver, which builds the ordinary files (_assemble.py).

The result of each finished step is kept in a folder that the driver and the workers see. Other modules of lmtool use
only run.py and cluster.py.
"""
