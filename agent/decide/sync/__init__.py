"""Synchronisation over a directory that all pods share: what its files say, and what follows from them."""
