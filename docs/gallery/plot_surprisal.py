"""
What surprises a model, word by word
====================================

A word's surprisal is -log2 of its probability: the number of bits needed to encode which word comes next. It shows
where a longer context helps.
"""

# %%
# A unigram, a bigram and a 5-gram model score the same sentence.

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
sentence = "return the number of items in the list if the key is not found"
orders = [1, 2, 5]
bits = {}
for order in orders:
    run = lmtool.train({"kind": "ngram", "order": order}, corpus)
    bits[order] = -run.model.score(sentence) / np.log(2)

# %%
words = [*sentence.split(), "</s>"]
x = np.arange(len(words))
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
for order, marker in zip(orders, "os^", strict=True):
    axes.plot(x, bits[order], marker=marker, label=f"order {order}: {bits[order].sum():.0f} bits")
axes.set(title="Surprisal of each word of a sentence by three models", ylabel="bits", ylim=(0, None))
axes.set_xticks(x, words, rotation=45, ha="right")
axes.legend()
plt.show()

# %%
# The unigram model gives every rare word a high surprisal; the others predict "of" after "number", and with a longer
# context whole phrases have almost no surprisal.
