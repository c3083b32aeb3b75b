"""The GCE metadata server: where this node stands, asked within strict limits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from http.client import BadStatusLine, HTTPConnection, HTTPException
from typing import NamedTuple

from agent.machine.api import Whereabouts
from agent.machine.workers import in_time

ATTRIBUTES = ("physical_host_topology", "physical_host")
TRIES = 5
MOST_BYTES = 4096
_PATH = "/computeMetadata/v1/instance/attributes/"
_FLAVOR = "Metadata-Flavor"


class Attribute(NamedTuple):
    """What the server said of one: its text, or why there is none, and whether asking again may help."""

    text: str = ""
    problem: str = ""
    final: bool = True


def locate(host: str, tries: int = TRIES, seconds: float = 2.0) -> Whereabouts:
    """Both attributes at once, each asked at most `tries` times for `seconds`. Blocks, never raises.

    The server is on the node itself: it answers within milliseconds, or not at all.
    """
    answers = _ask_both(host, ATTRIBUTES, seconds)
    if tries > 1 and not all(answer.final for answer in answers.values()):
        answers |= _ask_again(host, answers, tries - 1, seconds)
    texts = {name: answer.text for name, answer in answers.items() if answer.text}
    problems = sorted({answer.problem for answer in answers.values() if answer.problem})
    warning = "" if texts else f"no place from the metadata server {host}: {'; '.join(problems)}"
    return Whereabouts(texts, warning)


def _ask_again(host: str, first: dict[str, Attribute], tries: int, seconds: float) -> dict[str, Attribute]:
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


def _ask_both(host: str, names: Sequence[str], seconds: float) -> dict[str, Attribute]:
    answers: dict[str, Attribute] = {}

    def work(name: str) -> None:
        answers[name] = _ask(host, name, seconds)

    # A name look-up is outside the socket's own limit, and so is a server that sends a byte now and then.
    in_time([partial(work, name) for name in names], len(names), time.monotonic() + seconds + 0.5)
    silent = _silent(seconds)
    return {name: answers.get(name, silent) for name in names}


def _silent(seconds: float) -> Attribute:
    return Attribute(problem=f"no answer within {seconds:g} s", final=False)


def _ask(host: str, name: str, seconds: float) -> Attribute:
    try:
        with closing(HTTPConnection(host, timeout=seconds)) as connection:
            connection.request("GET", _PATH + name, headers={_FLAVOR: "Google"})
            response = connection.getresponse()
            body = response.read(MOST_BYTES + 1)
    except TimeoutError:
        return _silent(seconds)
    except BadStatusLine:
        return Attribute(problem="what answers there does not speak HTTP", final=False)
    except (OSError, HTTPException, OverflowError, ValueError) as error:
        return Attribute(problem=str(error) or type(error).__name__, final=False)
    text = body.decode("utf-8", "replace").strip()
    if response.status == 404:
        return Attribute(problem="it does not have the attributes " + " and ".join(ATTRIBUTES))
    if response.status != 200:
        return Attribute(problem=f"it answered {response.status}", final=False)
    if response.headers.get(_FLAVOR) != "Google":
        return Attribute(problem=f"what answers is not a metadata server (no {_FLAVOR}: Google header)")
    if len(body) > MOST_BYTES:
        return Attribute(problem=f"its answer has more than {MOST_BYTES} bytes")
    if response.length:
        return Attribute(problem="its answer broke off", final=False)
    return Attribute(text=text) if text else Attribute(problem="its answer is empty")
