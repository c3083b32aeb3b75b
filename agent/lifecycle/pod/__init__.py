"""A pod by itself: prepared, known, with its sshd and its environment."""
