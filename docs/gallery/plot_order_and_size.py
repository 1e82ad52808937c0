"""
Perplexity against order and text size
======================================

How long should n-grams be? It depends on the size of the text.
"""

# %%
# The sentences of the train split as lists of words, and parts of them: every k-th sentence. All models have the same
# vocabulary and the same valid split, so their perplexities can be compared.

import matplotlib.pyplot as plt

import lmtool

corpus = lmtool.preprocess("pydoc")
known = corpus.vocabulary.words


def sentences(split):
    """Return the sentences of a split, each a list of words without </s>."""
    text = corpus.split(split)
    tokens = [known[token] for token in text.ids]
    return [tokens[first : last - 1] for first, last in zip(text.offsets[:-1], text.offsets[1:], strict=True)]


train, valid = sentences("train"), sentences("valid")
orders = [1, 2, 3, 5]
curves = {}
for every in (25, 5, 1):
    part = lmtool.Corpus.from_texts(train=train[::every], valid=valid, words=known[:-1], name=f"part-{every}")
    runs = [lmtool.train({"kind": "ngram", "order": order}, part) for order in orders]
    curves[part.tokens("train")] = [run.valid_perplexity for run in runs]

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for (tokens, perplexities), marker in zip(curves.items(), "os^", strict=True):
    axes.plot(orders, perplexities, marker=marker, label=f"{tokens:,} tokens")
axes.set(title="Valid perplexity by order and size of the text", xlabel="order", ylabel="perplexity", xticks=orders)
axes.set(yscale="log")
axes.set_yticks([80, 100, 150, 200, 250], ["80", "100", "150", "200", "250"])
axes.minorticks_off()
axes.legend(title="modified Kneser-Ney")
plt.show()

# %%
# Five times the text helps every order, longer ones most. With little text, orders above 3 gain almost nothing, but do
# no harm.
