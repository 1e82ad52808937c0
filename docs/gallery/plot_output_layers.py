"""
Output layers: speed against perplexity
=======================================

With a large vocabulary most of a network's time goes into its output layer. Five ways to spend less of it than the
full softmax, each above the same encoder and trained for the same number of steps.
"""

# %%

import matplotlib.pyplot as plt

import lmtool

corpus = lmtool.preprocess("pydoc")
layers = ["softmax", "adaptive", "sampled", "classes", "nce", "hierarchical"]
runs = {
    layer: lmtool.train(
        {"kind": "nplm", "embedding_dim": 30, "hidden_dim": 60, "history": 0, "dropout": 0},
        corpus,
        output=layer,
        training={"steps": 90, "batch_size": 256, "minutes": None, "evaluate_every": 1, "accuracy_on": 0},
        optim={"lr": 0.01},
    )
    for layer in layers
}

# %%
# ``examples_per_second`` is the speed of training, evaluations left out. It depends on the machine; what matters is how
# the layers compare.

figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for (layer, run), marker in zip(runs.items(), "os^DvP", strict=True):
    axes.plot(run.examples_per_second / 1000, run.valid_perplexity, marker, markersize=8, linestyle="", label=layer)
axes.set(
    title="Valid perplexity of output layers after 90 steps, by speed",
    xlabel="thousands of examples per second",
    ylabel="perplexity",
)
axes.set(xlim=(0, None))
axes.legend()
plt.show()

# %%
# The full softmax is among the slowest; the hierarchical one costs no perplexity here at several times its speed.
