"""How long several parts of a pod's life wait alike. What only one of them waits for is beside its code."""

from __future__ import annotations

REPORT_SECONDS = 30.0
"""Whoever waits for pods says after each of these for whom, in the log or to the command that asks."""
EARLY_SECONDS = 20.0
"""How long an end that comes before all pods have met waits for those that are still starting, to tell them."""
SETTLE_SECONDS = 2.0
"""A job that is deleted ends all its pods, but not at the same moment: within this time."""
LAST_WORDS_SECONDS = 2.0
"""How long a pod's end waits for who reads its last words: the coordinator, and readers of stdout and stderr."""
BEAT_SECONDS = 5.0
"""The most between two signs of life: to other pods, and for probes."""
PROBE_SECONDS = 5.0
"""How long a directory on a server may take to answer while it is not known whether it can be used at all."""
