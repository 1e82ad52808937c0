"""One log-probability for every predicted token: kept, shown, read from other tools, compared, used to rescore."""
