"""What the ranks of a run that hangs said last."""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_TEXT = 256 * 1024
MOST_LINE = 500


def last_words(outputs: Mapping[str, str], lines: int = 20) -> str:
    """The last lines of each file (relative name → text); empty without files, at most about MOST_TEXT characters.

    mpirun and torchrun, and each of their versions, name these files in their own ways: the name is the label.
    """
    if not outputs:
        return ""
    names = sorted(outputs, key=_natural)
    share = MOST_TEXT // len(names)
    blocks = [_block(name, outputs[name], lines, share) for name in names if outputs[name].strip()]
    silent = [name for name in names if not outputs[name].strip()]
    if silent:
        blocks.append(f"nothing in {', '.join(silent)}"[:MOST_LINE] + "\n")
    return "last output of every rank\n\n" + "\n".join(blocks)


def _natural(name: str) -> list[tuple[int, str]]:
    """rank.2 before rank.10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)]


def _block(name: str, text: str, lines: int, most: int) -> str:
    kept: list[str] = []
    left = most - len(name)
    for line in reversed(text.rstrip().split("\n")[-lines:]):
        last = line.rstrip("\r").rpartition("\r")[2]  # as a terminal shows a progress bar: only its last state
        indented = f"  {last if len(last) <= MOST_LINE else f'{last[:MOST_LINE]} …'}\n"
        left -= len(indented)
        if kept and left < 0:
            break
        kept.insert(0, indented)
    return f"{name}:\n{''.join(kept)}"
