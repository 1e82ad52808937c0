"""
A map of words
==============

Embeddings are learned only to predict the next word, and words with similar use end up close to each other.
"""

# %%
# A log-bilinear model, and the two principal components of the embeddings of frequent words.

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
run = lmtool.train(
    {"kind": "lbl", "embedding_dim": 50},
    corpus,
    output="hierarchical",
    training={"steps": 400, "batch_size": 256, "minutes": None, "accuracy_tokens": 0},
    optim={"lr": 0.005},
)
model = run.model
chosen = [k for k, word in enumerate(model.words[:140]) if word.isalpha()]
vectors = model.embeddings[chosen]
vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
vectors -= vectors.mean(axis=0)
_, _, axes_of_space = np.linalg.svd(vectors, full_matrices=False)
points = vectors @ axes_of_space[:2].T

# %%
figure, axes = plt.subplots(figsize=(7.4, 6), layout="constrained")
axes.scatter(*points.T, s=4, color="C1")
for (x, y), k in zip(points, chosen, strict=True):
    axes.annotate(model.words[k], (x, y), fontsize=7.5, ha="center", va="bottom")
axes.set(title=f"Embeddings of {len(chosen)} frequent words, two principal components", xticks=[], yticks=[])
plt.show()

# %%
# Nearest neighbors in all dimensions.

for word in ("is", "file", "returns"):
    print(word, "-", ", ".join(f"{near} {cosine:.2f}" for near, cosine in model.neighbors(word, top=5)))

# %%
# Auxiliary verbs, prepositions and nouns are in separate regions, though the model was not given any classes.
