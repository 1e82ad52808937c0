"""
Tree codes against entropy
==========================

A hierarchical softmax predicts a word by the decisions on its path in a binary tree. The mean number of decisions per
word is at least the entropy of the words in bits, and Huffman's tree is within one bit of it. Trees that group similar
words may still learn better.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
kinds = ["huffman", "frequency", "classes", "brown", "balanced", "random"]
trees = {kind: lmtool.tree(kind, corpus) for kind in kinds}
trees["huffman"]

# %%
# Depths of the words in three of the trees, against the ideal length, -log2 of the word's share of the text.

counts = corpus.vocabulary.counts[:-1]
lengths = -np.log2(np.maximum(counts, 1) / counts.sum())

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.barh(kinds[::-1], [trees[kind].metric for kind in kinds[::-1]])
entropy = trees["huffman"].analysis.entropy
left.axvline(entropy, color="gray", linestyle="--")
left.set(title=f"Decisions per word (dashed: entropy, {entropy:.2f} bits)", xlabel="mean depth, weighted by frequency")
for kind, marker in (("balanced", "."), ("brown", "."), ("huffman", ".")):
    tree = trees[kind].tree
    right.plot(lengths[tree.leaf_words], tree.depths, marker, markersize=3, label=kind)
right.plot([3, 18], [3, 18], color="gray", linestyle="--")
right.set(title="Depth of each word", xlabel="-log2 of its share of the text", ylabel="decisions")
right.legend(markerscale=3)
plt.show()

# %%
# Huffman's tree follows the dashed line, a balanced tree ignores frequency, and Brown clusters use some more decisions
# to keep similar words together.
