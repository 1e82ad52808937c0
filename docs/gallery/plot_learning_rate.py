"""
Finding a learning rate
=======================

The learning-rate range test (Smith 2017) raises the rate step by step and records the loss, which first falls and then
explodes. A good rate is well below that point.
"""

# %%

import matplotlib.pyplot as plt

import lmtool

corpus = lmtool.preprocess("pydoc")
tests = {}
for name, optimizer in (("adamw", "adamw"), ("sgd", "sgd")):
    tests[name] = lmtool.train(
        {"kind": "hsoftmax", "embedding_dim": 50, "hidden_dim": 64, "fofe_window": 0},
        corpus,
        optim=optimizer,
        training={"batch_size": 256},
        lr_range=True,
        lr_range_steps=150,
        lr_range_limits=[1e-4, 100.0],
    )

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for name, test in tests.items():
    # The first 20 smoothed losses are means of few values and are omitted.
    (line,) = axes.plot(test.rates[20:], test.smoothed[20:], label=f"{name}, proposed: {test.proposed:.2g}")
    axes.axvline(test.proposed, color=line.get_color(), linestyle=":")
axes.set(
    title="Loss while the learning rate rises",
    xlabel="learning rate",
    ylabel="smoothed loss, nats",
    xscale="log",
    ylim=(5, 8),
)
axes.legend()
plt.show()

# %%
# Each optimizer needs a different rate. The suggestion is a tenth of the rate with the lowest loss.
