"""
Calibration: does 10 % mean one time in ten?
============================================

A language model gives a probability for every word at every position. If it is calibrated, a tenth of all words with a
probability of about 10 % actually occur.
"""

# %%
# The whole distribution after each of 3,000 contexts of valid: all pairs of a context and a word are binned by their
# probability.

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
valid = corpus.split("valid")
places = np.linspace(0, valid.tokens - 1, 3000).astype(int)
bins = np.logspace(-5, 0, 16)


def calibration(model):
    """Return the mean predicted probability of each bin, and the share of its words that occurred."""
    contexts, targets = valid.windows(places, model.context_size)
    predicted, expected, true = np.zeros((3, len(bins) + 1))
    for part in np.array_split(np.arange(len(places)), 6):
        p = np.exp(model.log_dist(contexts[part]))  # [N, V]
        which = np.digitize(p, bins)
        predicted += np.bincount(which.ravel(), minlength=len(bins) + 1)
        expected += np.bincount(which.ravel(), weights=p.ravel(), minlength=len(bins) + 1)
        true += np.bincount(which[np.arange(len(part)), targets[part]], minlength=len(bins) + 1)
    enough = true >= 5
    return expected[enough] / predicted[enough], true[enough] / predicted[enough]


# %%
figure, axes = plt.subplots(figsize=(5.4, 4.4), layout="constrained")
axes.loglog([1e-5, 1], [1e-5, 1], color="gray", linestyle="--", label="calibrated")
for smoother, marker in (("modified_kneser_ney", "o"), ("witten_bell", "s"), ("laplace", "^")):
    run = lmtool.train({"kind": "ngram", "order": 3}, corpus, smoother=smoother)
    axes.loglog(*calibration(run.model), marker=marker, label=smoother)
axes.set(
    title="Calibration of trigrams with three smoothers", xlabel="predicted probability", ylabel="share that came true"
)
axes.legend()
plt.show()

# %%
# Modified Kneser-Ney is on the diagonal over four orders of magnitude; Laplace smoothing gives far too little
# probability to n-grams that it has seen.
