"""Neural training: the loop, its parts, and the checkpoints from which it can be resumed."""
