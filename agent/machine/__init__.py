"""Effects: the only code that touches processes, the network and files."""
