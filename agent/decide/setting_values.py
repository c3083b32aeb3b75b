"""How the text of a setting becomes its value. Each parser raises ValueError with what it takes."""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.decide.environment import NAME
from agent.decide.location import parse_location
from agent.decide.words import did_you_mean


def whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def seconds(example: str, least: float = 1.0) -> Callable[[str], float]:
    return _number(f"a number of seconds (at least {least:g}), such as {example}", lambda value: value >= least)


def none_or(example: str, least: float = 1.0) -> Callable[[str], float]:
    return _number(f"0 or a number (at least {least:g}), such as {example}", lambda value: not 0 < value < least)


def _number(wanted: str, fits: Callable[[float], bool]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,3})?", text) or not fits(float(text)):
            raise ValueError(wanted)
        return float(text)

    return parse


def auto_or(parse: Callable[[str], float]) -> Callable[[str], float | str]:
    def parse_or_auto(text: str) -> float | str:
        if text.lower() == "auto":
            return "auto"
        try:
            return parse(text)
        except ValueError as wanted:
            raise ValueError(f"auto, or {wanted}") from None

    return parse_or_auto


def flag(text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False}
    words |= {"off": False, "": False}
    if text.lower() not in words:
        raise ValueError("true or false")
    return words[text.lower()]


def gate(text: str) -> str:
    """`true`, `false` or `strict`."""
    if text.lower() == "strict":
        return "strict"
    try:
        return str(flag(text)).lower()
    except ValueError:
        raise ValueError("true, false or strict") from None


def choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError("one of " + ", ".join(words) + did_you_mean(text.lower(), words))
        return text.lower()

    return parse


def matching(pattern: str, wanted: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(wanted)
        return text

    return parse


WARN_SIGNALS = ("USR1", "USR2", "XCPU")
"""Not HUP or INT: a script's own torchrun would end its ranks."""


def warn_signal(text: str) -> str:
    """Name of a signal without its SIG; empty for none."""
    name = text.upper().removeprefix("SIG")
    if name in ("", "NONE"):
        return ""
    if name not in WARN_SIGNALS:
        raise ValueError("none or one of " + ", ".join(WARN_SIGNALS))
    return name


def place(text: str) -> str:
    if text and parse_location(text) is None:
        raise ValueError("a place such as /cluster/block/sub-block/host, of letters, digits, '.', '_' and '-'")
    return text


def public_keys(text: str) -> str:
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if not re.match(r"(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/=]+( .*)?$", line):
            raise ValueError("the text of an OpenSSH public key file, such as 'ssh-ed25519 AAAA… name'")
    return text.strip()


def names(text: str) -> str:
    """Names of variables, one space between them."""
    found = text.replace(",", " ").split()
    if not all(NAME.fullmatch(name) for name in found):
        raise ValueError("names of variables, with spaces or commas between them")
    return " ".join(found)


path = matching(r"/[^\0\n]*", "an absolute path")
maybe_path = matching(r"(/[^\0\n]*)?", "an absolute path")
# It is written into configurations of ssh and sshd, which expand and split what else a path may hold.
run_dir = matching(r"(/[A-Za-z0-9._@+=-]+)+/?", "an absolute path of letters, digits and '._@+=-'")
DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
