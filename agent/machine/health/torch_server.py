"""Asks torch's own server in a rank, over the Unix socket that entrypoints/hook opens there."""

from __future__ import annotations

import socket
from contextlib import closing
from http.client import HTTPConnection, HTTPException

RECORDERS = {"gloo": "fr_trace_json", "nccl": "dump_nccl_trace_json"}
"""The handler of each of torch's recorders."""
MOST_ANSWER = 64 << 20


class NoAnswer(OSError):
    """The server gave none; the text says why."""


def ask_rank(path: str, handler: str, seconds: float) -> bytes:
    """What a handler answers; `seconds` may pass without a byte of it. Raises NoAnswer: a stopped rank's kernel accepts
    the connection, and nobody answers."""
    try:
        with closing(HTTPConnection("rank")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(seconds)
            connection.sock.connect(path)
            connection.request("POST", f"/handler/{handler}/", headers={"Connection": "close"})
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
    if answer.length:
        raise NoAnswer("the answer broke off")
    return body
