"""Keep docs/zh with the English pages: this writes tests/translations.json, which block translates which.

.venv/bin/python -m scripts.translations [--unchanged docs/zh/PAGE.md:LINE ...]

A translation whose English has changed is recorded when it has changed, too, or if --unchanged says it is still right.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PATH = ROOT / "tests/translations.json"
COMMAND = ".venv/bin/python -m scripts.translations"
PAGES = {f"docs/zh/{path.name}": f"docs/{path.name}" for path in sorted(ROOT.glob("docs/zh/*.md"))}
PAGES["docs/zh/README.md"] = "README.md"
BLOCK = re.compile(
    r"(?m)^(?:(?P<code>(?:    .*\n)+|```.*\n(?:.*\n)*?```\n)|(?P<row>\|.*\n)|(?P<heading>#.*\n)"
    r"|(?P<item>(?:[-*]|\d+\.) .*\n(?: +\S.*\n)*)|(?P<paragraph>.+\n(?:(?!\||#|[-*] |```).+\n)*))"
)
TO_DO = {
    "missing": "a block is missing here: translate it",
    "gone": "the English page has no such block: take it out",
    "unlike": "the English page has another kind of block here, or other code: make it the same",
    "stale": f"the English has changed: translate it anew, then run {COMMAND} (if it is still right, with --unchanged)",
    "new": f"the translation has changed: run {COMMAND}",
}


class Block(NamedTuple):
    line: int
    kind: str
    text: str

    @property
    def digest(self) -> str:
        """The same if lines are only wrapped in another way."""
        return hashlib.sha256(" ".join(self.text.split()).encode()).hexdigest()[:12]


class Pair(NamedTuple):
    english: Block | None
    chinese: Block | None
    line: int  # where the Chinese block begins, or belongs
    recorded: str  # the digest of the English block that the Chinese one translates

    @property
    def state(self) -> str:
        """A key of TO_DO, or `current`."""
        if self.english is None or self.chinese is None:
            return "missing" if self.english else "gone"
        alike = self.english.text == self.chinese.text or self.english.kind != "code"
        if self.english.kind != self.chinese.kind or not alike:
            return "unlike"
        return "current" if self.recorded == self.english.digest else "stale" if self.recorded else "new"


def blocks(text: str) -> list[Block]:
    """Headings, paragraphs, items, rows and code of a page, without the link to the other language."""
    found = (Block(text.count("\n", 0, one.start()) + 1, one.lastgroup or "", one[0]) for one in BLOCK.finditer(text))
    return [block for block in found if not block.text.startswith(("[English](", "[中文]("))]


def pairs(english: str, chinese: str, record: Iterable[str]) -> Iterator[Pair]:
    """The blocks of both pages side by side: by the record where it knows them, and by their order in between."""
    known: dict[str, list[str]] = {}
    for original, translation in map(str.split, record):
        known.setdefault(translation, []).append(original)
    ours, theirs = blocks(english), blocks(chinese)
    recorded = [one.digest if one.kind == "code" else (known.get(one.digest) or [""]).pop(0) for one in theirs]
    lines = [*(one.line for one in theirs), chinese.count("\n") + 1]
    matcher = SequenceMatcher(None, [one.digest for one in ours], recorded, autojunk=False)
    for _, start, end, first, last in matcher.get_opcodes():
        for our, at in zip_longest(ours[start:end], range(first, last)):
            yield Pair(our, None, lines[last], "") if at is None else Pair(our, theirs[at], lines[at], recorded[at])


def problem(page: str, pair: Pair) -> str:
    english = f"\n    {PAGES[page]}:{pair.english.line}: {pair.english.text.strip()}" if pair.english else ""
    return f"{page}:{pair.line}: {TO_DO[pair.state]}{english}"


def taken(page: str, found: Sequence[Pair], unchanged: Iterable[str]) -> list[int]:
    """Lines of what is to be recorded. None while blocks do not match: their order may mislead."""
    if any(pair.state in ("missing", "gone", "unlike") for pair in found):
        return []
    return [pair.line for pair in found if pair.state == "new" or f"{page}:{pair.line}" in unchanged]


def renewed(found: Iterable[Pair], lines: Iterable[int]) -> list[str]:
    """The record, in which the blocks on these lines translate the English of today."""
    return [
        f"{pair.english.digest if pair.line in lines else pair.recorded} {pair.chinese.digest}"
        for pair in found
        if pair.english and pair.chinese and pair.chinese.kind != "code" and (pair.recorded or pair.line in lines)
    ]


def main() -> str:
    parser = argparse.ArgumentParser()
    parser.add_argument("--unchanged", nargs="+", default=[], metavar="FILE:LINE")
    unchanged, record, left = set(parser.parse_args().unchanged), json.loads(PATH.read_text()), []
    for page, original in PAGES.items():
        texts = (ROOT / original).read_text(), (ROOT / page).read_text()
        found = list(pairs(*texts, record.get(page, [])))
        lines = taken(page, found, unchanged)
        unchanged -= {f"{page}:{line}" for line in lines}
        record[page] = renewed(found, lines)
        print("".join(f"recorded {page}:{line}\n" for line in lines), end="")
        left += [problem(page, pair) for pair in pairs(*texts, record[page]) if pair.state != "current"]
    PATH.write_text(json.dumps(record, indent=1) + "\n")
    return "\n".join([*left, *(f"{one}: no block to be recorded begins there" for one in sorted(unchanged))])


if __name__ == "__main__":
    raise SystemExit(main() or 0)
