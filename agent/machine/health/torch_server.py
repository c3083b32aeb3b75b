"""Asks torch's own server in a rank, over the Unix socket that entrypoints/hook opens there."""

from __future__ import annotations

import socket
import time

RECORDERS = {"gloo": "fr_trace_json", "nccl": "dump_nccl_trace_json"}
"""The handler of each of torch's recorders."""
MOST_ANSWER = 64 << 20
PIECE = 1 << 16


class NoAnswer(OSError):
    """The server gave none; the text says why."""


def ask_rank(path: str, handler: str, seconds: float) -> bytes:
    """What a handler answers. Raises NoAnswer: a stopped rank's kernel accepts the connection, and nobody answers."""
    deadline = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(seconds)
            peer.connect(path)
            peer.sendall(f"POST /handler/{handler}/ HTTP/1.0\r\nHost: rank\r\nContent-Length: 0\r\n\r\n".encode())
            return content(_all(peer, deadline))
    except TimeoutError:
        raise NoAnswer(f"no answer within {seconds:g} s") from None
    except NoAnswer:
        raise
    except OSError as error:
        raise NoAnswer(error.strerror or str(error)) from None


def _all(peer: socket.socket, deadline: float) -> bytes:
    """All that comes until the other side closes, or until the announced length is there."""
    data = bytearray()
    wanted: int | None = None
    while wanted is None or len(data) < wanted:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        peer.settimeout(left)
        piece = peer.recv(PIECE)
        if not piece:
            break
        data += piece
        if len(data) > MOST_ANSWER:
            raise NoAnswer(f"more than {MOST_ANSWER} bytes")
        if wanted is None:
            wanted = _length(bytes(data))
    return bytes(data)


def _length(data: bytes) -> int | None:
    """How long the whole answer is; None as long as that is not known."""
    head, found, _ = data.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    if not found or not lengths or not lengths[0].strip().isdigit():
        return None
    return len(head) + 4 + int(lengths[0])


def content(answer: bytes) -> bytes:
    """The body of an HTTP answer. Raises NoAnswer for any but 200, and for one that is not whole."""
    head, found, body = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if not found or len(words) < 2 or not words[0].startswith(b"HTTP/"):
        raise NoAnswer("no HTTP answer")
    if words[1] != b"200":
        raise NoAnswer(f"HTTP {words[1].decode(errors='replace')}")
    wanted = _length(answer)
    if wanted is not None and len(answer) < wanted:
        raise NoAnswer("the answer broke off")
    return body
