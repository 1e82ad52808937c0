"""Counting on Spark, for text that does not fit on one machine; the driver estimates from the counts as usual.

Step 1: count the types of the text; the driver chooses the vocabulary from them (run.py).
Step 2: count the n-grams of all orders in pieces where the text lies (_tasks.py).
Step 3: sort them by order and words across the cluster, and add up equal ones, which are then consecutive.
Step 4: stream them to the driver, which packs them into the Counts that counting by sorting gives (run.py).

The result of each finished step is kept in a folder that the driver and the workers see. Other modules of lmtool use
only run.py and cluster.py.
"""
