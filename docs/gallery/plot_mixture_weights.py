"""
The weights of a mixture
========================

An n-gram model and a network make different errors, so a mixture of the two is better than either. What is the best
weight?
"""

# %%
# A Kneser-Ney model of order 5, and a small network with a hierarchical softmax, trained for a few seconds.

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
kn5 = lmtool.train({"kind": "ngram", "order": 5}, corpus)
network = lmtool.train(
    {"kind": "hsoftmax", "embedding_dim": 50, "hidden_dim": 64, "fofe_window": 0, "dropout": 0.1},
    corpus,
    training={"steps": 240, "batch_size": 256, "minutes": None, "accuracy_tokens": 0},
    optim={"lr": 0.005},
)

# %%
# The mixture's perplexity at every weight can be computed from both models' probabilities of each token.
# ``lmtool.ensemble`` finds the optimum by EM.

p, q = (np.exp(lmtool.evaluate(run, "valid").log_probs) for run in (kn5, network))
weights = np.linspace(0, 1, 51)
perplexities = [np.exp(-np.log((1 - weight) * p + weight * q).mean()) for weight in weights]
mixture = lmtool.ensemble([kn5, network])
mixture

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
axes.plot(weights, perplexities)
axes.plot(mixture.weights[1], mixture.perplexity, "o", markersize=8, label=f"by EM: {mixture.weights[1]:.3f}")
axes.annotate("Kneser-Ney alone", (0, perplexities[0]), xytext=(10, 0), textcoords="offset points", va="center")
axes.annotate(
    "network alone", (1, perplexities[-1]), xytext=(-10, 0), textcoords="offset points", va="center", ha="right"
)
axes.set(
    title="Valid perplexity of a mixture by its network's weight", xlabel="weight of the network", ylabel="perplexity"
)
axes.legend()
plt.show()

# %%
# Even a network that is worse alone improves the mixture, and EM finds the only minimum of the curve.
