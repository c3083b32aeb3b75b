"""Programs of a4-agent that were given wrong arguments say so on stderr, and end with 2."""

from __future__ import annotations

import re


def wrong_usage(output: str) -> str:
    """What a program found wrong with its arguments, in argparse's words; empty: nothing."""
    found = re.search(r"^\S*\b\w+\.py: error: (.+)", output, re.MULTILINE)
    return found[1] if found else ""
