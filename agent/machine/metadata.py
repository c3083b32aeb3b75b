"""The GCE metadata server: where this node stands, asked within strict limits."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from agent.machine.api import Whereabouts

ATTRIBUTES = ("physical_host_topology", "physical_host")
TRIES = 5
TRY_SECONDS = 2.0
MOST_BYTES = 4096
_PATH = "/computeMetadata/v1/instance/attributes/"
_FLAVOR = "Metadata-Flavor"


@dataclass(frozen=True)
class Answer:
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

    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds + 0.5  # a name look-up is outside the socket's own limit
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = _silent(seconds)
    return {name: answers.get(name, silent) for name in names}


def _silent(seconds: float) -> Answer:
    return Answer(problem=f"no answer within {seconds:g} s", final=False)


def _ask(host: str, name: str, seconds: float) -> Answer:
    try:
        # http.client knows no proxies, which is what we want here.
        with closing(http.client.HTTPConnection(host, timeout=seconds)) as connection:
            connection.request("GET", _PATH + name, headers={_FLAVOR: "Google"})
            response = connection.getresponse()
            body = _read(response, time.monotonic() + seconds)
    except TimeoutError:
        return _silent(seconds)
    except (OSError, OverflowError, http.client.HTTPException, ValueError) as error:
        return Answer(problem=str(error) or type(error).__name__, final=False)
    if response.status == 404:
        return Answer(problem="it does not have the attributes " + " and ".join(ATTRIBUTES))
    if response.status != 200:
        return Answer(problem=f"it answered {response.status}", final=False)
    if response.getheader(_FLAVOR) != "Google":
        return Answer(problem=f"what answers is no metadata server (no {_FLAVOR}: Google header)")
    if body is None:
        return Answer(problem=f"an answer of more than {MOST_BYTES} bytes is no place")
    return Answer(text=body.strip()) if body.strip() else Answer(problem="an empty answer")


def _read(response: http.client.HTTPResponse, deadline: float) -> str | None:
    """The body, None when it is longer than any place can be. Raises TimeoutError."""
    body = b""
    while len(body) <= MOST_BYTES:
        if time.monotonic() > deadline:
            raise TimeoutError
        piece = response.read1(MOST_BYTES)
        if not piece:
            return body.decode("utf-8", "replace")
        body += piece
    return None
