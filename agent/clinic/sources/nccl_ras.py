"""Asks NCCL's RAS, which listens in one process of each pod (NCCL 2.24 and later; JSON from 2.28.7 on)."""

from __future__ import annotations

import re
import socket

from agent.clinic.sources.torch_server import NoAnswer

DEFAULT_ADDRESS = "localhost:28028"
MOST_ANSWER = 16 << 20


def parse_address(text: str) -> tuple[str, int]:
    """NCCL_RAS_ADDR as host and port. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port):
        raise ValueError(f"{text!r} has no port")
    return (host.strip("[]") or "localhost"), int(port)


def ask_ras(address: str, seconds: float) -> str:
    """The answer to STATUS, as JSON where this NCCL has it, else as text; `seconds` may pass without a byte of it. NCCL
    closes the connection after it. Raises NoAnswer."""
    asked = b"CLIENT PROTOCOL 2\nTIMEOUT %d\nSET FORMAT json\nVERBOSE STATUS\n" % max(1, int(seconds) - 1)
    try:
        with socket.create_connection(parse_address(address), timeout=seconds) as peer, peer.makefile("rb") as answer:
            peer.sendall(asked)
            data = answer.read(MOST_ANSWER + 1)
    except TimeoutError:
        raise NoAnswer(f"no answer within {seconds:g} s") from None
    except (OSError, ValueError) as error:
        raise NoAnswer(getattr(error, "strerror", None) or str(error)) from None
    if len(data) > MOST_ANSWER:
        raise NoAnswer(f"more than {MOST_ANSWER} bytes")
    return data.decode(errors="replace")
