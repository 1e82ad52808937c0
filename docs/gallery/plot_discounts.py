"""
A sweep of discounts
====================

Absolute discounting and Kneser-Ney smoothing subtract a discount D from every count and give this mass to the shorter
context. They differ in what the shorter context counts: occurrences, or distinct preceding words (Kneser & Ney 1995).
"""

# %%
# Five discounts for each of two smoothers. N-grams are counted once and kept beside the store, so each model takes a
# fraction of a second.

import matplotlib.pyplot as plt

import lmtool

corpus = lmtool.preprocess("pydoc")
discounts = [0.2, 0.4, 0.6, 0.8, 0.95]
perplexities, estimated = {}, {}
for kind in ("absolute", "kneser_ney"):
    runs = [
        lmtool.train({"kind": "ngram", "order": 3}, corpus, smoother={"kind": kind, "discounts": d}) for d in discounts
    ]
    perplexities[kind] = [run.valid_perplexity for run in runs]
    estimated[kind] = lmtool.train({"kind": "ngram", "order": 3}, corpus, smoother=kind).valid_perplexity

# %%
# If no discount is given, one per order is estimated from counts of counts: D = n1 / (n1 + 2 n2).

figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for kind, marker in (("absolute", "o"), ("kneser_ney", "s")):
    (line,) = axes.plot(discounts, perplexities[kind], marker=marker, label=kind)
    axes.axhline(estimated[kind], color=line.get_color(), linestyle=":", label=f"{kind}, estimated per order")
axes.set(
    title="Valid perplexity of trigrams against their discount",
    xlabel="discount D, the same for all orders",
    ylabel="perplexity",
)
axes.legend()
plt.show()

# %%
# Kneser-Ney is better at every discount. The estimates assume text of the same kind. Valid consists of other modules
# than train and has more new n-grams, so larger discounts are better; ``discounts="tuned"`` finds them.
