"""Names of the pods, as the headless service publishes them."""

from __future__ import annotations


def peer_name(prefix: str, index: int, domain: str) -> str:
    """DNS name of pod `index`, without the trailing dot: `<prefix>0-<index>.<domain>`."""
    return f"{prefix}0-{index}.{domain}"


def peer_names(prefix: str, count: int, domain: str) -> list[str]:
    """Names of pods 0 to `count` - 1."""
    return [peer_name(prefix, index, domain) for index in range(count)]
