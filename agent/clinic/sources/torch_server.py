"""Asks torch's own server in a rank, over the Unix socket that entrypoints/hook opens there."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import partial

from agent.clinic.sources.question import NoAnswer
from agent.machine.workers import in_time

RECORDERS = {"gloo": "fr_trace_json/", "nccl": "dump_nccl_trace_json/"}
"""What torch's server is asked for a recorder."""
HOOKED = {backend: f"fr_trace_json/?backend={backend}" for backend in ("nccl2", "nccl-lazy")}
"""A torch that does not know these backends answers for gloo."""
HOOKED_SINCE = (2, 15)
COUNTERS = (RECORDERS["nccl"] + "?includecollectives=false", *HOOKED.values(), RECORDERS["gloo"])
"""NCCL's without its entries; those of HOOKED show only what is not over; gloo's is large and comes last."""
ENTERED = re.compile(rb'"last_enqueued_collective":\s*"?(\d+)')
MOST_ANSWER = 64 << 20
MOST_AT_ONCE = 8
"""Ranks that are asked side by side."""


def ask_rank(path: str, handler: str, seconds: float) -> bytes:
    """What a handler answers; `seconds` may pass without a byte of it. Raises NoAnswer: a stopped rank's kernel accepts
    the connection, and nobody answers."""
    from http.client import HTTPConnection, HTTPException

    try:
        # http.client cannot connect to a Unix socket; the name only goes into the Host header.
        with closing(HTTPConnection("rank")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(seconds)
            connection.sock.connect(path)
            connection.request("POST", f"/handler/{handler}", headers={"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read(MOST_ANSWER + 1)
    except TimeoutError:
        raise NoAnswer(f"no answer within {seconds:g} s") from None
    except HTTPException:
        raise NoAnswer("no HTTP answer") from None
    except OSError as error:
        raise NoAnswer(error.strerror or str(error)) from None
    if answer.status != 200:
        raise NoAnswer(f"HTTP {answer.status}")
    if len(body) > MOST_ANSWER:
        raise NoAnswer(f"more than {MOST_ANSWER} bytes")
    # The rest of what Content-Length promised.
    if answer.length:
        raise NoAnswer("the answer broke off")
    return body


def entered_operations(directory: str, seconds: float) -> Mapping[int, int]:
    """Process → how many operations it has entered in all of its groups, for those whose sockets are in the directory
    and that answer in time."""
    found: dict[int, int] = {}

    def ask(pid: int) -> None:
        for handler in COUNTERS:
            with suppress(NoAnswer):
                status = ask_rank(f"{directory}/{pid}.sock", handler, seconds).rpartition(b'"pg_status"')[2]
                if numbers := ENTERED.findall(status):
                    found[pid] = sum(map(int, numbers))
                    return

    with suppress(OSError, RuntimeError):  # no directory before the first rank has begun; no more threads in this pod
        names = [name.removesuffix(".sock") for name in os.listdir(directory) if name.endswith(".sock")]
        asked = [partial(ask, int(name)) for name in names if name.isdecimal()]
        in_time(asked, MOST_AT_ONCE, time.monotonic() + seconds)
    return dict(found)
