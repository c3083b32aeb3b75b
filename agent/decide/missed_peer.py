"""Errors of torch that say that a peer is away: what they follow from is elsewhere."""

from __future__ import annotations

import re

_CLASSES = r"RuntimeError|Dist\w*Error|Rendezvous\w*Error"
"""Exceptions by which torch says that a peer is away. ConnectionError is the program's own: a download, say."""
_PEER_GONE = (
    # gloo
    r"Connection closed by peer",
    r"Connection reset by peer",
    r"Broken pipe",
    r"Connection refused|Connection timed out|No route to host",
    r"Timed out waiting \d+ ?ms for \w+ operation to complete",
    r"timed out connecting",
    r"connectFullMesh failed",
    # the store of the rendezvous
    r"Socket Timeout",
    r"client socket has (?:timed out|failed to connect)",
    r"Timed out after \d+ seconds waiting for",
    r"[Ff]ailed to recv, got 0 bytes",
    r"wait timeout after \d+ ?ms",
    r"The connection to the C10d store has failed",
    # NCCL
    r"remote process exited or there was a network error",
    r"ncclRemoteError",
    r"Connection closed by remote peer",
    r"Watchdog caught collective operation timeout",
    r"Aborting process on rank \d+ due to timeout",  # from torch 2.15 on
    r"NCCL operation timed out",
    r"NCCL communicator was aborted",
)
_GONE = re.compile("|".join(_PEER_GONE))
_OWN = re.compile(r"EADDRINUSE|[Aa]ddress already in use|CUDA error|out of memory")
"""Stronger than the words above, which may be in the same text."""


def misses_a_peer(text: str) -> bool:
    """Whether torch says here that a peer is away. The text of a watchdog has no class in front."""
    by_torch = re.fullmatch(f"(?:{_CLASSES})?", exception_class(text)) is not None
    return by_torch and _GONE.search(text) is not None and _OWN.search(text) is None


def exception_class(text: str) -> str:
    """The class of the exception that the text begins with; empty: of none."""
    found = re.match(r"(?:\w+\.)*(\w+(?:Error|Exception|Interrupt)): ", text)
    return found[1] if found else ""
