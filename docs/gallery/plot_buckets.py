"""
Buckets of documents
====================

A web filter such as CCNet (Wenzek et al. 2020) scores each document by an n-gram model of clean text and puts it into a
bucket by its perplexity: head, middle or tail. Here the clean text is Python's docstrings.
"""

# %%
# Documents of three kinds: ten lines of test each, the same with their words shuffled, and source code.

import inspect
import random
import re
import textwrap

import matplotlib.pyplot as plt
import numpy as np

import lmtool

kn5 = lmtool.train({"kind": "ngram", "order": 5}, lmtool.preprocess("pydoc"))
test = lmtool.evaluate(kn5, "test")
lines = [" ".join(test.words[a : b - 1]) for a, b in zip(test.offsets, test.offsets[1:], strict=False)]
documents = ["\n".join(lines[first : first + 10]) for first in range(0, len(lines), 10)]
shuffle = random.Random(1).sample
code = (inspect.getsource(textwrap) + inspect.getsource(random)).lower().splitlines()
source = [" ".join(re.findall(r"\w+|[^\w\s]", line)) for line in code]
kinds = {
    "test": documents,
    "words shuffled": [" ".join(shuffle(words, len(words))) for words in map(str.split, documents)],
    "source code": ["\n".join(source[first : first + 10]) for first in range(0, len(source), 10)],
}
found = {}
for kind, texts in kinds.items():
    scores = list(lmtool.score_texts(kn5, texts))
    found[kind] = [score.perplexity for score in scores]
    oov = sum(score.oov for score in scores) / sum(score.tokens for score in scores)
    print(f"{kind}: median perplexity {np.median(found[kind]):.0f}, {100 * oov:.1f} % OOVs")

# %%
# The limits are the perplexities that 30 and 60 % of all documents do not exceed; CCNet has such a pair for each
# language.

everything = np.concatenate(list(found.values()))
limits = np.quantile(everything, [0.3, 0.6])
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
bins = np.geomspace(everything.min(), everything.max(), 40)
axes.hist(list(found.values()), bins=bins, stacked=True, label=list(found))
for limit, name in zip(limits, ["head ends", "middle ends"], strict=True):
    axes.axvline(limit, color="black", linestyle="dashed", linewidth=1)
    axes.annotate(name, (limit, axes.get_ylim()[1]), rotation=90, va="top", ha="right")
axes.set(xscale="log", xlabel="perplexity", ylabel="documents", title="Documents by perplexity")
axes.legend()
plt.show()

# %%
# Shuffled words are in the tail. Source code is in the head with the docstrings, although it is not clean text: many of
# its words are unknown, and ``<unk>`` has a high probability. So filters of crawled text take a model of pieces, as
# CCNet does, or limit the share of unknown words (``max_oov=0.1`` of ``lmtool score``).
