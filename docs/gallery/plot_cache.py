"""
A cache over time
=================

Words that have just been used are likely to be used again. A unigram cache (Kuhn & De Mori 1990) adds to a mixture the
frequency of each word among the last few hundred.
"""

# %%
# The cache's weight is fitted on valid; test is then read, starting with an empty cache.

from collections import Counter

import matplotlib.pyplot as plt
import numpy as np

import lmtool

corpus = lmtool.preprocess("pydoc")
kn5 = lmtool.train({"kind": "ngram", "order": 5}, corpus)
cached = lmtool.ensemble([kn5], cache="unigram", cache_size=500, fit_split="valid", split="test")
static = lmtool.evaluate(kn5, "test")
print(f"test perplexity {static.perplexity:.1f}, with the cache {cached.perplexity:.1f}")

# %%
# The gain of each token in bits, summed along the text, and the words that gain most.

gains = (cached.evaluation.log_probs - static.log_probs) / np.log(2)
words = np.array(static.words)
frequent = [word for word, _ in Counter(static.words).most_common(200) if word.isalpha() and len(word) > 3]
by_word = sorted(((gains[words == word].mean(), word) for word in frequent), reverse=True)[:10]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=(3, 2))
left.plot(np.cumsum(gains) / 1000)
left.set(title="Bits that the cache saves along test", xlabel="tokens read", ylabel="thousands of bits, in total")
right.barh([word for _, word in by_word[::-1]], [gain for gain, _ in by_word[::-1]], color="C1")
right.set(title="Words it helps most", xlabel="bits per occurrence")
plt.show()

# %%
# The gain grows along the text, fastest where a module uses special words, and comes from words of the topic.
