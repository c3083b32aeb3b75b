"""`python -m agent` is `a4-agent`."""

from agent.cli import entry

if __name__ == "__main__":
    entry()
