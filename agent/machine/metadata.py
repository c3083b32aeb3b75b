"""The GCE metadata server: where this node stands, asked within strict limits."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from agent.machine.api import Whereabouts
from agent.machine.in_time import in_time

ATTRIBUTES = ("physical_host_topology", "physical_host")
TRIES = 5
TRY_SECONDS = 2.0
"""The server is on the node itself and answers within milliseconds, or not at all."""
MOST_BYTES = 4096
MOST_RESPONSE = 4 * MOST_BYTES
"""Head and body."""
_PATH = "/computeMetadata/v1/instance/attributes/"
_FLAVOR = "Metadata-Flavor"


class Answer(NamedTuple):
    """One attribute: its text, or why there is none, and whether asking again may help."""

    text: str = ""
    problem: str = ""
    final: bool = True


def locate(host: str, tries: int = TRIES, seconds: float = TRY_SECONDS) -> Whereabouts:
    """Both attributes at once, each asked at most `tries` times for `seconds`. Blocks, never raises."""
    answers = _ask_both(host, ATTRIBUTES, seconds)
    if tries > 1 and not all(answer.final for answer in answers.values()):
        answers |= _ask_again(host, answers, tries - 1, seconds)
    texts = {name: answer.text for name, answer in answers.items() if answer.text}
    problems = sorted({answer.problem for answer in answers.values() if answer.problem})
    warning = "" if texts else f"no place from the metadata server {host}: {'; '.join(problems)}"
    return Whereabouts(texts, warning)


def _ask_again(host: str, first: dict[str, Answer], tries: int, seconds: float) -> dict[str, Answer]:
    # Imported here: a pod whose first try succeeds, as almost all do, does not pay for it.
    from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_exponential, wait_random

    answers = dict(first)

    def ask() -> bool:
        answers.update(_ask_both(host, [name for name, answer in answers.items() if not answer.final], seconds))
        return all(answer.final for answer in answers.values())

    policy = Retrying(
        stop=stop_after_attempt(tries),
        wait=wait_exponential(multiplier=0.1, max=1.0) + wait_random(0, 0.2),
        retry=retry_if_result(lambda settled: not settled),
        retry_error_callback=lambda state: None,
    )
    policy(ask)
    return answers


def _ask_both(host: str, names: Sequence[str], seconds: float) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}

    def work(name: str) -> None:
        answers[name] = _ask(host, name, seconds)

    # A name look-up is outside the socket's own limit.
    in_time([partial(work, name) for name in names], len(names), time.monotonic() + seconds + 0.5)
    silent = _silent(seconds)
    return {name: answers.get(name, silent) for name in names}


def _silent(seconds: float) -> Answer:
    return Answer(problem=f"no answer within {seconds:g} s", final=False)


def _ask(host: str, name: str, seconds: float) -> Answer:
    try:
        response = _get(host, _PATH + name, time.monotonic() + seconds)
    except TimeoutError:
        return _silent(seconds)
    except (OSError, OverflowError, ValueError) as error:
        return Answer(problem=str(error) or type(error).__name__, final=False)
    text = response.body.decode("utf-8", "replace").strip()
    if response.status == 404:
        return Answer(problem="it does not have the attributes " + " and ".join(ATTRIBUTES))
    if response.status != 200:
        return Answer(problem=f"it answered {response.status}", final=False)
    if response.headers.get(_FLAVOR.lower()) != "Google":
        return Answer(problem=f"what answers is no metadata server (no {_FLAVOR}: Google header)")
    if response.in_chunks:
        return Answer(problem="it answers in chunks, though it was asked with HTTP/1.0")
    if len(response.body) > MOST_BYTES:
        return Answer(problem=f"an answer of more than {MOST_BYTES} bytes is no place")
    if len(response.body) < response.length:
        return Answer(problem="its answer broke off", final=False)
    return Answer(text=text) if text else Answer(problem="an empty answer")


class Response(NamedTuple):
    """What an HTTP server said, or the beginning of it."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def length(self) -> int:
        """Bytes that the whole body has, if the server says so."""
        given = self.headers.get("content-length", "")
        return int(given) if given.isdecimal() else 0

    @property
    def in_chunks(self) -> bool:
        return "transfer-encoding" in self.headers

    def is_enough(self) -> bool:
        """Whether no more is read: all that the server promised is there, or it is in chunks, which nobody reads."""
        return self.in_chunks or 0 < self.length <= len(self.body)


def _get(host: str, path: str, deadline: float) -> Response:
    """The whole response, or as much of it as MOST_RESPONSE. Raises TimeoutError, OSError, OverflowError or ValueError.

    One request of HTTP/1.0, through no proxy: http.client costs each pod's start 25 ms of CPU for what it imports.
    """
    received, response = b"", None
    with socket.create_connection(_address(host), _left(deadline)) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n{_FLAVOR}: Google\r\n\r\n".encode())
        while len(received) < MOST_RESPONSE and not (response and response.is_enough()):
            connection.settimeout(_left(deadline))
            piece = connection.recv(MOST_RESPONSE)
            if not piece:
                break
            received += piece
            response = _parsed(received)
    if response is None:
        raise ValueError("what answers there does not speak HTTP")
    return response


def _left(deadline: float) -> float:
    """Seconds. Raises TimeoutError where there are none: sockets take no such limit."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _address(host: str) -> tuple[str, int]:
    """Name or address, and port, of HOST, HOST:PORT or [ADDRESS]:PORT."""
    name, colon, port = host.rpartition(":")
    if not (colon and re.fullmatch(r"\d+", port)):
        name, port = host, "80"
    return name.removeprefix("[").removesuffix("]"), int(port)


def _parsed(received: bytes) -> Response | None:
    """None while the head is not whole. Raises ValueError."""
    head, whole, body = received.partition(b"\r\n\r\n")
    if not whole:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    found = re.match(r"HTTP/1\.\d (\d{3})\b", first)
    if not found:
        raise ValueError("what answers there does not speak HTTP")
    pairs = (line.partition(":") for line in lines)
    return Response(int(found[1]), {name.lower(): value.strip() for name, _, value in pairs}, body)
