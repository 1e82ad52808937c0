"""
How much of the context has been seen
=====================================

A back-off model of order 5 has seen only some of the n-grams of new text. For the others, it uses shorter ones, down
to bigrams or the word alone.
"""

# %%
# ``matched_lengths`` gives, for each token, the order of the longest n-gram that ends there and is in the model.

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
run = lmtool.train({"kind": "ngram", "order": 5}, corpus)
test = corpus.split("test")
ngrams = run.model.model
levels = ngrams.matched_lengths(*test.windows(np.arange(test.tokens), ngrams.context_size))
log_probs = lmtool.evaluate(run, "test").log_probs

# %%
orders = np.arange(1, 6)
share = np.array([(levels == order).mean() for order in orders])
bits = np.array([-log_probs[levels == order].mean() / np.log(2) for order in orders])

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
left.bar(orders, 100 * share)
left.set(title="Tokens of test by longest n-gram seen", xlabel="order of the n-gram", ylabel="% of tokens")
right.bar(orders, bits, color="C1")
right.set(title="How surprising they are", xlabel="order of the n-gram", ylabel="bits per token")
plt.show()

# %%
# More than half of the tokens are predicted from bigrams or unigrams. Tokens whose whole context is known cost a
# fraction of the bits.
