"""
NCE: scores that nearly sum to one
==================================

Noise-contrastive estimation (Mnih & Teh 2012) never computes Z, the sum over all words, and trains the network to keep
it near one. Then a word's score can be used as its log-probability, without the other words. How near to one is it?
"""

# %%
# Two numbers of noise words. ``evaluate`` normalizes exactly; with ``unnormalized=True`` it uses the raw scores. The
# difference is log Z.

import matplotlib.pyplot as plt

import lmtool

corpus = lmtool.preprocess("pydoc")
log_z = {}
for noise in (10, 500):
    run = lmtool.train(
        {"kind": "nce", "embedding_dim": 50, "hidden_dim": 64, "fofe_window": 0, "dropout": 0},
        corpus,
        output={"kind": "nce", "num_noise": noise},
        training={"steps": 300, "batch_size": 256, "minutes": None, "accuracy_tokens": 0},
        optim={"lr": 0.005},
    )
    exact, scores = lmtool.evaluate(run, "valid"), lmtool.evaluate(run, "valid", unnormalized=True)
    log_z[noise] = scores.log_probs - exact.log_probs
    mean, deviation = exact.log_z["mean"], exact.log_z["std"]
    print(f"{noise} noise words: perplexity {exact.perplexity:.1f}, log Z {mean:.3f} +- {deviation:.3f}")

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for noise, values in log_z.items():
    axes.hist(values, bins=80, range=(-0.75, 1.5), histtype="stepfilled", alpha=0.55, label=f"{noise} noise words")
axes.axvline(0, color="gray", linestyle="--")
axes.set(title="log Z of two NCE networks over the contexts of valid", xlabel="log Z, natural", ylabel="contexts")
axes.legend()
plt.show()

# %%
# log Z stays near 0 in every context, though training never sums over the words, and more noise words bring its mean
# closer to 0.
