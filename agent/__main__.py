"""`python -m agent` is `a4-agent`. By its path this file also runs where the package is not installed."""

import os
import sys

if __name__ == "__main__":
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if home not in sys.path:
        sys.path.insert(0, home)
    from agent.cli import entry

    entry()
