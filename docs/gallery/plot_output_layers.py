"""
Output layers against the vocabulary
====================================

With a large vocabulary, a network spends most of its time in its output layer. The full softmax computes a score for
every word at each step; the others do not.
"""

# %%
# The source is synthetic, so its vocabulary can have any size. A run's ``examples_per_second`` is the training speed
# without evaluations.

import matplotlib.pyplot as plt

import lmtool

layers = {"softmax": {}, "adaptive": {}, "nce": {}, "hierarchical": {"tree": "huffman"}}
sizes = [3_000, 3_000, 20_000]  # the first round loads compiled code and is not shown
speeds = {layer: [] for layer in layers}
for size in sizes:
    corpus = lmtool.preprocess(
        {"kind": "synthetic", "types": size, "tokens": 50_000, "valid_tokens": 500, "test_tokens": 500}
    )
    for layer, settings in layers.items():
        run = lmtool.train(
            {"kind": "nplm", "embedding_dim": 30, "hidden_dim": 60, "fofe_window": 0, "dropout": 0},
            corpus,
            output=layer,
            **settings,
            training={"steps": 12, "batch_size": 256, "minutes": None, "evaluate_every": 1, "accuracy_tokens": 0},
        )
        speeds[layer].append(run.examples_per_second)

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for layer, marker in zip(layers, "os^D", strict=True):
    axes.loglog(sizes[1:], speeds[layer][1:], marker=marker, label=layer)
axes.set(title="Speed of output layers by the size of the vocabulary", xlabel="words", ylabel="examples per second")
axes.set_xticks(sizes[1:], [f"{size:,}" for size in sizes[1:]])
axes.set_yticks([2_000, 5_000, 10_000, 20_000, 50_000], ["2,000", "5,000", "10,000", "20,000", "50,000"])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# The time of the full softmax grows with the vocabulary, that of the hierarchical one with its logarithm.
