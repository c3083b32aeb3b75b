"""How the text of a setting becomes its value. Each parser raises ValueError with what it takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from agent.decide.environment import NAME
from agent.decide.location import parse_location
from agent.decide.words import did_you_mean

MOST_LIVES = 1000
"""How often a run may start again."""
NUMBER = r"[0-9]{1,7}(\.[0-9]{1,3})?"


class Parser:
    """How the text of one kind of setting becomes its value. Raises ValueError with what it takes."""

    def __init__(
        self,
        read: Callable[[str], Any],
        pattern: str,
        wanted: str,
        least: float = 0,
        most: float = math.inf,
        *,
        or_zero: bool = False,
        words: Sequence[str] = (),
    ) -> None:
        self.read = read
        self.pattern = pattern
        """For `re` and for Go's regexp: the chart, which cannot call this, checks settings by patterns and limits."""
        self.wanted = wanted
        self.least, self.most, self.or_zero = least, most, or_zero
        self.words = words
        """What may be meant by another word."""

    def __call__(self, text: str) -> Any:
        if not re.fullmatch(self.pattern, text) or not self._fits(text):
            raise ValueError(self.wanted + did_you_mean(text.lower(), self.words))
        return self.read(text)

    def _fits(self, text: str) -> bool:
        if not re.fullmatch(NUMBER, text):
            return True
        return self.least <= float(text) <= self.most or (self.or_zero and float(text) == 0)


def whole(low: int, high: int) -> Parser:
    return Parser(int, r"[0-9]{1,9}", f"a whole number from {low} to {high}", low, high)


def seconds(example: str, least: float = 1.0) -> Parser:
    return Parser(float, NUMBER, f"a number of seconds (at least {least:g}), such as {example}", least)


def none_or(example: str, least: float = 1.0) -> Parser:
    return Parser(float, NUMBER, f"0 or a number (at least {least:g}), such as {example}", least, or_zero=True)


def auto_or(number: Parser) -> Parser:
    return Parser(
        lambda text: "auto" if text.lower() == "auto" else number.read(text),
        f"(?i:auto)|{number.pattern}",
        f"auto, or {number.wanted}",
        number.least,
        number.most,
        or_zero=number.or_zero,
    )


FLAGS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_FLAG = f"{'|'.join(FLAGS)}|"
flag = Parser(lambda text: FLAGS.get(text.lower(), False), f"(?i:{_FLAG})", "true or false")
gate = Parser(
    lambda text: "strict" if text.lower() == "strict" else str(flag.read(text)).lower(),
    f"(?i:strict|{_FLAG})",
    "true, false or strict",
)


def choice(*words: str) -> Parser:
    return Parser(str.lower, f"(?i:{'|'.join(words)})", "one of " + ", ".join(words), words=words)


def matching(pattern: str, wanted: str) -> Parser:
    return Parser(str, pattern, wanted)


WARN_SIGNALS = ("USR1", "USR2", "XCPU")
"""Not HUP or INT: a script's own torchrun would end its ranks."""
warn_signal = Parser(
    lambda text: text.upper().removeprefix("SIG").removesuffix("NONE"),
    f"(?i:(SIG)?(NONE|{'|'.join(WARN_SIGNALS)}|))",
    "none or one of " + ", ".join(WARN_SIGNALS),
)
"""Name of a signal without its SIG; empty for none."""


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


restart_reasons = Parser(
    lambda text: ",".join(dict.fromkeys(text.lower().replace(",", " ").split())),
    r"(?i:\s*((lost|unhealthy|stalled|[1-9][0-9]{0,2})(\s*,\s*|\s+|\s*$))*)",
    "`lost`, `unhealthy`, `stalled` and exit codes, such as lost,unhealthy,75,137,143",
)
"""Words with a comma between them; empty: nothing starts a run again."""
path = matching(r"/[^\0\n]*", "an absolute path")
maybe_path = matching(r"(/[^\0\n]*)?", "an absolute path")
# It is written into configurations of ssh and sshd, which expand and split what else a path may hold.
run_dir = matching(r"(/[A-Za-z0-9._@+=-]+)+/?", "an absolute path of letters, digits and '._@+=-'")
DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
