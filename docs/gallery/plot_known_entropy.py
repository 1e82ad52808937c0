"""
How far from the entropy?
=========================

How good can a model get? For real text this is unknown. The entropy of a synthetic source is known in closed form, so a
model's distance from the best possible one can be measured.
"""

# %%
# The source draws each word by Zipf's law or from the few successors of the previous word, so only bigrams can be
# learned.

import matplotlib.pyplot as plt
import numpy as np

import lmtool
from lmtool.config.settings import data_settings
from lmtool.data.sources.synthetic import entropy

sizes = [3_000, 30_000, 300_000]
smoothers = ["modified_kneser_ney", "witten_bell"]
perplexities = {smoother: [] for smoother in smoothers}
for size in sizes:
    corpus = lmtool.preprocess(
        {"kind": "synthetic", "tokens": size, "types": 1000, "valid_tokens": 20_000, "test_tokens": 1_000}
    )
    for smoother in smoothers:
        run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother=smoother)
        perplexities[smoother].append(run.valid_perplexity)
best = np.exp(entropy(data_settings(corpus.provenance)))

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for smoother, marker in zip(smoothers, "os", strict=True):
    axes.plot(sizes, perplexities[smoother], marker=marker, label=smoother)
axes.axhline(best, color="gray", linestyle="--", label=f"the source itself: {best:.1f}")
axes.set(
    title="Valid perplexity of bigrams on a source of known entropy", xlabel="tokens of train", ylabel="perplexity"
)
axes.set(xscale="log", ylim=(0, None))
axes.legend()
plt.show()

# %%
# With a hundred times the text, both smoothers come close to the perplexity of the source, and neither goes below it.
