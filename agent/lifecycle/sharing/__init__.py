"""What pods tell each other through a shared directory."""
