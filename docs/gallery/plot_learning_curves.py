"""
Learning curves of encoders
===========================

The same output layer, a hierarchical softmax over a Huffman tree, with three encoders: concatenated embeddings with a
hidden layer (Bengio et al. 2003), log-bilinear (Mnih & Hinton 2007), and the mean of the embeddings (Mikolov et al.
2013).
"""

# %%
# A run's ``history`` has a line per evaluation.

import matplotlib.pyplot as plt

import lmtool

corpus = lmtool.preprocess("pydoc")
encoders = {
    "nplm": {"kind": "nplm", "hidden_dim": 64, "fofe_window": 0, "dropout": 0.1},
    "lbl": {"kind": "lbl"},
    "cbow": {"kind": "cbow"},
}
histories = {}
for name, settings in encoders.items():
    run = lmtool.train(
        {"embedding_dim": 50, **settings},
        corpus,
        output="hierarchical",
        tree="huffman",
        training={"steps": 180, "batch_size": 256, "minutes": None, "evaluate_every": 0.03, "accuracy_tokens": 0},
        optim={"lr": 0.005},
    )
    histories[name] = run.history

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for (name, lines), marker in zip(histories.items(), "os^", strict=True):
    examples = [line["examples"] / 1000 for line in lines]
    axes.plot(examples, [line["valid_perplexity"] for line in lines], marker=marker, label=name)
axes.set(
    title="Valid perplexity of three encoders while they learn", xlabel="thousands of examples", ylabel="perplexity"
)
axes.set(yscale="log")
axes.set_yticks([110, 130, 150, 170, 190], ["110", "130", "150", "170", "190"])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# All three fall fastest at first. The encoders that use the order of the words end far below the mean of the
# embeddings, which does not.
