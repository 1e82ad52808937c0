"""
Counts, a window, a memory
==========================

Six sentences in a row are about the same person. An n-gram model and a feed-forward network read a window of words,
in which the last mention of the person may be missing; a recurrent network can remember it.
"""

# %%
# This code generates the text. Verbs and things are drawn by Zipf's law, the first most often.

import random

import matplotlib.pyplot as plt

import lmtool

PEOPLE = ["ann", "bob", "cleo", "dan", "eve", "finn", "gina", "hugo"]
VERBS = ["finds", "breaks", "drops", "hides", "paints", "lifts", "repairs", "throws"]
THINGS = [
    "book",
    "cup",
    "chair",
    "lamp",
    "box",
    "key",
    "desk",
    "plate",
    "coat",
    "bell",
    "knife",
    "map",
    "pen",
    "shoe",
    "ball",
    "bowl",
]
random.seed(1)


def choose(words):
    return random.choices(words, [1 / rank for rank in range(1, len(words) + 1)])[0]


def story():
    person = random.choice(PEOPLE)
    return [f"{person} {choose(VERBS)} the {choose(THINGS)}" for _ in range(6)]


train, valid = ([sentence for _ in range(stories) for sentence in story()] for stories in (500, 50))
corpus = lmtool.Corpus.from_texts(train, valid, name="stories")

# %%
# A run's ``history`` has a line per evaluation, with the seconds of training until then.

kneser_ney = lmtool.train({"kind": "ngram", "order": 5}, corpus)
sizes = {"embedding_dim": 32, "hidden_dim": 64, "tied": False, "dropout": 0.1, "input_dropout": 0}
memory = {"embedding_dropout": 0, "weight_dropout": 0}
networks = {"nplm": ({"context_size": 4, "fofe_window": 0}, 128), "rnn": (memory, 16), "lstm": (memory, 16)}
histories = {}
for kind, (settings, batch_size) in networks.items():
    run = lmtool.train(
        {"kind": kind, **sizes, **settings},
        corpus,
        output="softmax",
        training={"steps": 700, "batch_size": batch_size, "bptt": 20, "minutes": None, "accuracy_tokens": 0},
        optim={"lr": 0.01},
    )
    histories[kind] = run.history

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
axes.axhline(kneser_ney.valid_perplexity, color="gray", linestyle="--", label="Kneser-Ney of order 5")
for (kind, lines), marker in zip(histories.items(), "os^", strict=True):
    seconds = [line["seconds"] for line in lines]
    axes.plot(seconds, [line["valid_perplexity"] for line in lines], marker=marker, label=kind)
axes.set(title="Valid perplexity of text that must be remembered", xlabel="seconds of training", ylabel="perplexity")
axes.set(yscale="log")
axes.set_yticks([3, 3.5, 4, 5, 6], ["3", "3.5", "4", "5", "6"])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# Counting takes no time, and ``nplm`` ends near it: both read at most four words. The recurrent networks first learn
# slowly what is in a window, and then reach a lower perplexity, because they remember the person.
