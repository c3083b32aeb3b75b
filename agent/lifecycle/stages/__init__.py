"""The stages of a pipeline, carried out on one pod by a process of its own."""
