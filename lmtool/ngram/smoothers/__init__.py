"""One file a smoother: what it keeps for an n-gram that was seen, and what it leaves to shorter ones."""
