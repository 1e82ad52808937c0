"""
Smoothers compared, by order
============================

The longer the n-grams, the more it matters how a smoother treats rare ones. One call of ``lmtool.sweep`` trains every
combination and returns a table, best first.
"""

# %%

import matplotlib.pyplot as plt

import lmtool

smoothers = ["modified_kneser_ney", "kneser_ney", "good_turing", "witten_bell"]
orders = [2, 3, 4]
sweep = lmtool.sweep({"smoother": smoothers, "model.order": orders}, model="ngram", data="pydoc")
sweep

# %%
# The rows of the table are dictionaries.

perplexity = {(row["smoother"], int(row["model.order"])): row["valid_perplexity"] for row in sweep.rows}

figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for smoother, marker in zip(smoothers, "os^D", strict=True):
    axes.plot(orders, [perplexity[smoother, order] for order in orders], marker=marker, label=smoother)
axes.set(
    title="Valid perplexity of smoothers by order", xlabel="order", ylabel="perplexity", yscale="log", xticks=orders
)
axes.set_yticks([80, 90, 100, 110], ["80", "90", "100", "110"])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# At order 4, only the Kneser-Ney smoothers still improve; the others get worse.
