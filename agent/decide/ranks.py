"""What entrypoints/rank.sh records of every rank, and what that says of an MPI run of any program."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from agent.decide.ending import signal_name
from agent.decide.subset import grouped, pods_text, ranges
from agent.decide.words import plural

MPI_RANK, TORCHRUN_RANK = "OMPI_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID"
"""Variables that ranks and what they start have, and mpirun, its daemons and torchrun have not."""
FOLLOWED = (143, 14)
"""Codes of ranks that only followed another: mpirun's SIGTERM, and what Open MPI ends with when a peer is gone.
mpirun's SIGKILL is not among them: it takes rank.sh as well, so that a recorded 137 had another cause."""


class RankEnd(NamedTuple):
    """How one rank went."""

    code: int | None
    """Exit code (128 + n for a signal); None: it started, and nothing says that it ended."""
    when: float = 0.0
    """Seconds since 1970 on its pod's clock when it failed; 0: not known."""
    refused: bool = False
    """Its program could not be started; `code` is the shell's, 126 or 127."""
    step: str = ""
    """Which of several commands of the run it was a rank of; empty for a run of one."""
    unclaimed: bool = False
    """It waited for somebody to start it, and nobody came (docs/runs.md#debug-one-rank)."""


class RanksVerdict(NamedTuple):
    """What became of all planned ranks."""

    complete: bool
    """Every one of them ended 0."""
    first: int | None
    """The rank that failed first; None: none failed."""
    code: int
    """Its exit code, else 0."""
    refused: bool
    """Its program could not be started."""
    started: bool
    """At least one rank did."""
    text: str
    """Lines about what is not as it should be; empty when complete."""
    ended: bool = False
    """Every one of them has recorded its end."""
    pod: int | None = None
    """Completion index of the pod of the `first`."""
    what: str = ""
    """What became of the `first`, in words."""


def parse_rank(text: str) -> RankEnd:
    """Read one rank's file. Lines that are not whole yet say nothing, nor does the late end of an earlier step."""
    lines = text.split("\n")[:-1]
    refused, unclaimed = "refused" in lines, "nobody" in lines
    started = re.match(r"started(?: \d+)?(?: of (\S+))?$", lines[0], re.ASCII) if lines else None
    step = (started[1] or "") if started else ""
    for line in lines:
        found = re.fullmatch(r"ended (\d{1,3}) ?(\d+(?:\.\d+)?)?(?: of (\S+))?", line, re.ASCII)
        if found and (found[3] or "") == step:
            return RankEnd(int(found[1]), float(found[2] or 0), refused, step, unclaimed)
    return RankEnd(None, refused=refused, step=step, unclaimed=unclaimed)


def ranks_verdict(
    ranks: Mapping[int, RankEnd], planned: int, place: Callable[[int], int], lost: Collection[int] = ()
) -> RanksVerdict:
    """What the records of ranks 0 to `planned` - 1 say; `place(rank)` is the completion index of its pod.

    `lost`: pods whose records nobody can read.
    """
    known = {rank: ranks[rank] for rank in range(planned) if rank in ranks}
    failed = {rank: end for rank, end in known.items() if end.code}
    absent = [rank for rank in range(planned) if rank not in known]
    open_ended = [rank for rank, end in known.items() if end.code is None]
    first = _first(failed)
    because: list[int] = []
    if first is not None and failed[first].code not in FOLLOWED:
        # By mpirun. Those that its SIGKILL ended with their shell have recorded nothing.
        because, open_ended = [rank for rank in known if known[rank].code in (None, *FOLLOWED)], []
    others = [rank for rank in failed if rank not in (first, *because)]
    lines = [] if first is None else [f"rank {first} on pod {place(first)} {_told(failed[first])}"]
    lines += [f"ended because of it: {_ranks(because, place)}"] if because else []
    lines += [f"failed, too: {_ranks(others, place)}"] if others else []
    silent = [rank for rank in absent if place(rank) in lost]
    never = [rank for rank in absent if place(rank) not in lost]
    lines += [f"not known, since their pods are lost: {_ranks(silent, place)}"] if silent else []
    lines += [f"never started: {_ranks(never, place)}"] if never else []
    lines += [f"started and never ended: {_ranks(open_ended, place)}"] if open_ended else []
    return RanksVerdict(
        complete=not (failed or absent or open_ended) and planned > 0,
        first=first,
        code=(failed[first].code or 0) if first is not None else 0,
        refused=first is not None and failed[first].refused,
        started=bool(known),
        text="\n".join(lines),
        ended=all(rank in known and known[rank].code is not None for rank in range(planned)),
        pod=None if first is None else place(first),
        what="" if first is None else f"rank {first} {_told(failed[first], with_code=False)}",
    )


def as_json(ranks: Mapping[int, RankEnd], planned: int) -> dict[str, Any]:
    """The ranks for result.json: how many were planned, and which ended with which code."""
    ended = {rank: "never ended" if end.code is None else str(end.code) for rank, end in ranks.items()}
    by_code = grouped({rank: ended.get(rank, "never started") for rank in range(planned)})
    return {"ranks": planned, "ended": {code: ranges(of_code) for code, of_code in by_code.items()}}


def _first(failed: Mapping[int, RankEnd]) -> int | None:
    """The rank that failed first, as far as the clocks of several pods can tell."""
    if not failed:
        return None
    earliest = min((end.when for end in failed.values() if end.when), default=0.0)
    times = {rank: end.when or earliest for rank, end in failed.items()}  # one without a time may be the first
    # Clocks of pods differ by up to 1 s: the order of closer failures is not known.
    close = [rank for rank in failed if times[rank] <= earliest + 1.0]
    return min(close, key=lambda rank: (failed[rank].code in FOLLOWED, times[rank], rank))


def _told(end: RankEnd, *, with_code: bool = True) -> str:
    code = end.code or 0
    if end.refused:
        return "could not start its program: " + ("it was not found" if code == 127 else "it cannot be executed")
    if 128 < code <= 192:
        return f"was killed by {signal_name(code - 128)}" + (f" ({code})" if with_code else "")
    return f"ended with exit code {code}" if with_code else "failed"


def _ranks(ranks: Collection[int], place: Callable[[int], int]) -> str:
    """Ranks as people write them, with their pods: 'ranks 8-15 (pod 1)'."""
    pods = {place(rank) for rank in ranks}
    return f"{plural('rank', ranks)} {ranges(ranks)} ({pods_text(pods)})"
