"""One log-probability for every predicted token: computed, saved, read from other tools, compared, used to rescore."""
