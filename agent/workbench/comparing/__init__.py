"""Results of several runs as one page: two to four side by side, more over time."""
