"""Finding what is sick: decisions. What looks at processes, sockets and devices for them is in agent/machine/health."""
