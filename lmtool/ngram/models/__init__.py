"""Count-based models, the options of the group `model` that need no network."""
