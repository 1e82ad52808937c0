"""
Zipf's law, counts of counts, and the discounts they give
=========================================================

A few words make up most of a text, and most n-grams occur once. Modified Kneser-Ney (Chen & Goodman 1998) estimates
how much to subtract from each count from the number of n-grams that occur once, twice, three and four times.
"""

# %%
# The tokens of the train split, as ids. Ids are sorted by frequency, so the counts of the vocabulary are Zipf's curve.

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
ids = corpus.split("train").ids
words = corpus.vocabulary.counts
words = words[words > 0]

# %%
# The n-grams of orders 2 and 3, and n_r, the number of n-grams that occur r times.

counts_of_counts = {}
for order in (2, 3):
    windows = np.lib.stride_tricks.sliding_window_view(ids, order)
    _, counts = np.unique(windows, axis=0, return_counts=True)
    counts_of_counts[order] = np.bincount(counts)
    print(f"order {order}: {len(counts):,} n-grams, n1 to n4 = {counts_of_counts[order][1:5].tolist()}")

# %%
# Chen and Goodman's estimates: D_r = r - (r + 1) Y n_(r+1) / n_r with Y = n1 / (n1 + 2 n2). (A model of order 3 takes
# the discounts of its bigrams from counts of distinct preceding words; the formula is the same.)

discounts = {}
for order, n in counts_of_counts.items():
    y = n[1] / (n[1] + 2 * n[2])
    discounts[order] = [r - (r + 1) * y * n[r + 1] / n[r] for r in (1, 2, 3)]
    print(f"order {order}: D1, D2, D3+ = {', '.join(f'{d:.3f}' for d in discounts[order])}")

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
left.loglog(np.arange(1, len(words) + 1), words)
left.loglog([1, len(words)], [words[0], words[0] / len(words)], "--", label="slope -1")
left.set(title="Words by frequency", xlabel="rank", ylabel="occurrences")
left.legend()
for (order, n), marker in zip(counts_of_counts.items(), "os", strict=True):
    middle.loglog(np.arange(1, 31), n[1:31], marker, label=f"order {order}")
    right.plot([1, 2, 3], discounts[order], marker=marker, label=f"order {order}")
middle.set(title="n-grams that occur r times", xlabel="r", ylabel="n-grams")
right.set(title="The discounts they give", xlabel="r", ylabel="subtracted from a count of r", ylim=(0, None))
right.set_xticks([1, 2, 3], ["1", "2", "3+"])
middle.legend()
right.legend()
plt.show()

# %%
# Both the counts of words and the counts of counts fall nearly along a straight line. Each discount is smaller than the
# count, and grows with it.
