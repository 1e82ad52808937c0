"""
Predictors of reading times from one table
==========================================

Words that are harder to predict are read more slowly. A study of this needs, for each word as the reader saw it, its
surprisal by one model or several, and other predictors: its length, its frequency, and those of the word before.
"""

# %%
# One call gives a row per word with its punctuation, whose tokens are summed: ``list.`` is ``list`` and ``.`` to the
# models.

import matplotlib.pyplot as plt

import lmtool

corpus = lmtool.preprocess("pydoc")
runs = [
    lmtool.train({"kind": "ngram", "order": order}, corpus, out=f"order{order}", overwrite=True) for order in (2, 5)
]
text = ["Return the number of items in the list.", "If the key is not found, return the default value."]
table = lmtool.surprisal(runs, text, words="punctuation", lowercase=True, entropy=True, spillover=1)
table[["sentence", "word", "tokens", "oov", "surprisal_bits_order2", "surprisal_bits_order5", "length"]]

# %%
# Surprisal says how unexpected the word was, and entropy, before it is read, how uncertain the reader could be.

figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
x = table.index
axes.bar(x - 0.2, table["surprisal_bits_order2"], 0.4, label="surprisal, order 2")
axes.bar(x + 0.2, table["surprisal_bits_order5"], 0.4, label="surprisal, order 5")
axes.plot(x, table["entropy_bits_order5"], "k_", markersize=14, label="entropy before the word, order 5")
axes.set(title="What a reader has to expect", ylabel="bits", ylim=(0, 14))
axes.set_xticks(x, table["word"], rotation=45, ha="right")
axes.legend(ncols=3)
plt.show()

# %%
# Order 5 predicts *found* after *is not*, and *of* after *the number*. The table also has the log frequency of each
# word in the training text and, with ``spillover=1``, all of these values of the word before (``..._prev1``), ready for
# a regression in R or in statsmodels.
