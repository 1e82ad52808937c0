"""
Minimal pairs: which of two sentences is in order?
==================================================

Two words of a sentence are swapped. How often does a model give the sentence as it was the higher probability? Order 1
gives both the same probability, so all of its pairs are ties, which count as half.
"""

# %%
# Sentences of test with 6 to 20 words, each with two words swapped that are 1, 2 or 4 words apart. A pair is a record
# of JSON Lines, as in BLiMP; ``UID`` is its paradigm.

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
orders = [1, 2, 3, 5]
runs = [
    lmtool.train({"kind": "ngram", "order": order}, corpus, out=f"outputs/pairs/order{order}", overwrite=True)
    for order in orders
]
scored, rng = lmtool.evaluate(runs[0], "test"), np.random.default_rng(1)
pairs = []
for first, end in zip(scored.offsets, scored.offsets[1:], strict=False):
    words = scored.words[first : end - 1]  # without </s>
    for apart in (1, 2, 4):
        if 6 <= len(words) <= 20:
            k = rng.integers(len(words) - apart)
            swapped = [*words]
            swapped[k], swapped[k + apart] = words[k + apart], words[k]
            texts = {"sentence_good": " ".join(words), "sentence_bad": " ".join(swapped)}
            pairs.append(texts | {"UID": f"{apart} apart"})
Path("outputs/swapped.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))

# %%
# ``lmtool.pairs`` scores them with all runs, with intervals by the bootstrap.

table = lmtool.pairs(runs, "outputs/swapped.jsonl")
table

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for row in table.rows:
    if row["level"] == "paradigm":
        figures = {key: [row[f"order{order} {key}"] for order in orders] for key in ("accuracy", "lower", "upper")}
        accuracy, lower, upper = map(np.array, figures.values())
        axes.errorbar(orders, accuracy, [accuracy - lower, upper - accuracy], marker="o", capsize=3, label=row["name"])
axes.axhline(0.5, color="gray", linestyle="--")
axes.set(title="Accuracy on sentences with two words swapped", xlabel="order of the n-gram model", ylabel="accuracy")
axes.set_xticks(orders)
axes.legend()
plt.show()

# %%
# Order 2 already finds nine swaps out of ten. Swaps of neighbors are the hardest, since fewer words are out of place,
# and gain the most from longer contexts.
