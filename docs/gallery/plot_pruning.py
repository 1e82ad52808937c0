"""
Pruning: size against perplexity
================================

Most n-grams of a model can be removed at a small cost in perplexity. There are three criteria: count
(``prune_counts``), relative entropy (``prune_entropy``, Stolcke 1998), and expected gain on new text (``prune_to``).
"""

# %%

import matplotlib.pyplot as plt

import lmtool

corpus = lmtool.preprocess("pydoc")
model = {"kind": "ngram", "order": 4}
ways = {
    "prune, by counts": [{"prune_counts": counts} for counts in ([0, 0, 1], [0, 1], [0, 3])],
    "prune_entropy": [{"prune_entropy": share} for share in (5e-7, 3e-6, 2e-5)],
    "prune_to, by expected gain": [{"prune_to": share} for share in ("50%", "20%", "8%")],
}
full = lmtool.train(model, corpus)
runs = {way: [full, *(lmtool.train(model, corpus, **settings) for settings in swept)] for way, swept in ways.items()}

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for (way, pruned), marker in zip(runs.items(), "os^", strict=True):
    sizes = [run.parameters / 1000 for run in pruned]
    axes.plot(sizes, [run.valid_perplexity for run in pruned], marker=marker, label=way)
axes.set(title="Valid perplexity of pruned models by size", xlabel="thousands of n-grams", ylabel="perplexity")
axes.set(xscale="log", xticks=[25, 50, 100, 200, 400])
axes.set_xticklabels(["25", "50", "100", "200", "400"])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# A third of the n-grams is about as good as all of them. The smaller the model, the greater the advantage of expected
# gain.
