"""One module per fabric: what marks a pod that has it, what it needs, and what is wrong with it."""
