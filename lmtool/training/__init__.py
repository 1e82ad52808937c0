"""Neural training: the loop, what it is made of, and the checkpoints that it can be resumed from."""
