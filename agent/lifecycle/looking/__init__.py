"""A look at what the processes of a run do in this pod, in a process of its own: whatever hangs, hangs there."""
