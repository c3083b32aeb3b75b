"""Which rank has printed a line, where the line says so."""

from __future__ import annotations

import re

MARK = re.compile(rb"\[(?:\S*?\b1,|rank ?)(\d+)\](?:<std(?:out|err)>)?:|\[default(\d+)\]:")
"""Of `mpirun --tag-output`, of a traceback of torch; of `torchrun --tee`, which counts the ranks of its pod."""


def rank_of(line: bytes, first: int) -> int | None:
    """The rank in the mark at the beginning of a line; None without a mark. `first`: that of the pod's first rank."""
    found = MARK.match(line)
    if found is None:
        return None
    return int(found[1]) if found[1] else first + int(found[2])
