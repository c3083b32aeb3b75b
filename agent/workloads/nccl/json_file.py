"""Reads what programs of nccl-tests write with -J (versions 2 and 3 of that file).

The file also holds the whole environment of rank 0, tokens and all: nothing here looks at that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.wire import finite
from agent.workloads.nccl_tests import SUFFIX
from agent.workloads.sweeps import UNKNOWN, Measured, MeasuredSweep, Row, measured, of_kinds


def parse_json(text: str) -> tuple[MeasuredSweep, ...] | None:
    """One for each type, operation and root; None when the text is not such a file, or not whole: then the printed
    table has to do."""
    try:
        return _sweeps(json.loads(text))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):  # also `inf`, which is no JSON
        return None


def version_text(code: object) -> str:
    """22907 → 2.29.7; empty for any other number."""
    if not isinstance(code, int) or code < 1000:
        return ""
    large, middle = (10000, 100) if code >= 10000 else (1000, 100)
    return f"{code // large}.{code % large // middle}.{code % 100}"


def _sweeps(data: Mapping[str, Any]) -> tuple[MeasuredSweep, ...]:
    results: Sequence[Mapping[str, Any]] = data["results"]
    devices: Sequence[Mapping[str, Any]] = data["config"]["devices"]
    ranks, groups, copies = _ranks(data["config"])
    whole = replace(
        UNKNOWN,
        collective=SUFFIX.sub("", re.sub(r".*/", "", data["args"][0])),
        ranks=ranks,
        iterations=_iterations(data["config"], results),
        warmup=data["config"].get("warmup_iters"),
        average_busbw=finite((data.get("average_bus_bandwidth") or {}).get("bandwidth")),
        out_of_bounds=(data.get("out_of_bounds") or {}).get("count"),
        groups=groups,
        copies=copies,
        models=tuple(dict.fromkeys(model for device in devices if (model := device.get("device_info", "").strip()))),
    )
    rows = [
        Row(told["size"], told["count"], _measured(told.get("out_of_place")), _measured(told.get("in_place")))
        for told in results
    ]
    kinds = [(told["type"], told["redop"] or UNKNOWN.redop, int(told["root"])) for told in results]
    return of_kinds(whole, zip(kinds, rows, strict=True))


def _iterations(config: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> int | None:
    """The fewest that a row really has: a limit of time may have cut them."""
    counts = [config.get("iterations"), *(row.get("actual_iterations") for row in results)]
    return min((count for count in counts if isinstance(count, int) and count > 0), default=None)


def _ranks(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """(ranks, groups, copies). One device is listed for each process, however many GPUs it has."""
    devices = config["devices"]
    groups = [device.get("group", 0) for device in devices]
    width = config.get("nthreads", 1) * config.get("ngpus", 1)
    # Each process that takes itself for the only one is a rank 0.
    copies = [device["rank"] for device in devices].count(0)
    return groups.count(groups[0]) * width, len(set(groups)), max(1, copies)


def _measured(data: Mapping[str, Any] | None) -> Measured | None:
    if data is None:
        return None
    # With -C the file has the CPU's time, under this name.
    time = data.get("cpu_time") if finite(data.get("time")) is None else data["time"]
    return measured((time, data.get("alg_bw"), data.get("bus_bw")), data.get("nwrong"))
