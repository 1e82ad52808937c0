"""Earlier names of settings, which the message about an unknown key replaces by the present ones; a verb precedes
the name of a setting that has moved to it.
"""

from __future__ import annotations

RENAMED = {
    "broken": "on_error",
    "counts.path": "counts.paths",
    "data": "text",  # of pairs
    "data.normalise": "data.normalize",
    "model.anew": "model.context_reset_prob",
    "model.direct": "model.direct_connections",
    "model.forgetting": "model.forgetting_factors",
    "model.history": "model.fofe_window",
    "least": "min_perplexity",
    "like": "ngrams_from",
    "likely": "top_k",
    "marks": "keep_punctuation",
    "most": "max_perplexity",
    "most_oov": "max_oov",
    "nbest": "lmtool rescore nbest",
    "nbest_costs": "lmtool rescore costs",
    "nbest_reference": "lmtool rescore reference",
    "nbest_weight": "lmtool rescore weight",
    "nbest_word_penalty": "lmtool rescore word_penalty",
    "normalise": "normalize",
    "output.learn_normaliser": "output.learn_log_z",
    "output.noise": "output.num_noise",
    "output.power": "output.unigram_power",
    "output.samples": "output.num_samples",
    "output.shared": "output.share_noise",
    "prune": "prune_counts",
    "schedule.at": "schedule.milestones",
    "schedule.factor": "schedule.gamma",  # of steps; plateau has a factor
    "smoother.classes": "smoother.count_buckets",
    "smoother.largest": "smoother.gt_max",
    "smoother.largest_unigram": "smoother.gt_max_unigram",
    "smoother.like_kenlm": "smoother.kenlm_compatible",
    "training.accuracy_on": "training.accuracy_tokens",
    "training.clip_norm": "training.max_grad_norm",
    "training.consecutive": "training.shuffle_block",
    "training.gradients": "training.embedding_gradients",
    "training.max_norm": "training.embedding_max_norm",
    "training.tensorboard": "training.trackers",
    "tree.tokens": "tree.max_tokens",
    "tree.words": "tree.max_words",
    "unnormalised": "unnormalized",
}
