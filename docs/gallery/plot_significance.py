"""
Is the difference real? The paired bootstrap
============================================

Two models differ by a point of perplexity on one text. Would they differ on another? The bootstrap (Koehn 2004)
repeatedly draws the text's sentences with replacement, the same ones for both models, in blocks of consecutive
sentences, because neighbors depend on each other.
"""

# %%
# Modified Kneser-Ney and Witten-Bell, both of order 3 and backed off, on the same tokens of test.

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
model = {"kind": "ngram", "order": 3}
smoothers = [{"kind": kind, "interpolate": False} for kind in ("kneser_ney", "witten_bell")]
runs = [lmtool.train(model, corpus, smoother=smoother) for smoother in smoothers]
first, second = (lmtool.evaluate(run, "test") for run in runs)

# %%
# Only the log-probability and the number of tokens of each sentence are needed.

starts = first.offsets[:-1]
sums = np.stack([np.add.reduceat(scored.log_probs, starts) for scored in (first, second)])  # [2, S]
tokens = np.diff(first.offsets)

# %%
# ``lmtool.compare`` draws 10,000 times, and adds p-values. The column ``block`` is the mean length of the blocks, which
# follows the measured autocorrelation of the difference.

table = lmtool.compare(runs, split="test")
block = table.rows[1]["block"]
table

# %%
# The stationary bootstrap (Politis & Romano 1994) begins a new block with a probability of 1 / block at each sentence.

rng, count = np.random.default_rng(1), len(starts)
draws = rng.integers(count, size=(2000, count))  # [B, S]
for k in range(1, count):
    goes_on = rng.random(2000) > 1 / block
    draws[goes_on, k] = (draws[goes_on, k - 1] + 1) % count
perplexities = np.exp(-sums[:, draws].sum(axis=2) / tokens[draws].sum(axis=1))  # [2, B]
differences = perplexities[1] - perplexities[0]

# %%
low, high = np.quantile(differences, [0.025, 0.975])
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
axes.hist(differences, bins=50)
axes.axvspan(low, high, color="C1", alpha=0.2, label=f"95 % confidence interval: {low:.2f} to {high:.2f}")
axes.axvline(second.perplexity - first.perplexity, color="C1", label="measured")
axes.axvline(0, color="gray", linestyle="--", label="no difference")
axes.set(
    title="Differences of test perplexity in 2,000 draws of blocks of sentences",
    xlabel="Witten-Bell minus Kneser-Ney",
    ylabel="draws",
)
axes.legend()
plt.show()

# %%
# No draw comes near zero: on other text of this kind, the order of the two models would be the same.
