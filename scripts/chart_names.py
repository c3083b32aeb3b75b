"""The chart's lists of workloads and fabric profiles are the agent's: this writes them into chart/values.yaml and
values.strict.schema.json, and makes of that values.schema.json, which Helm reads.

.venv/bin/python -m scripts.chart_names
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from agent.catalogue import RUNNABLE
from agent.fabrics.profiles import CHOICES

CHART = Path(__file__).resolve().parent.parent / "chart"
COMMAND = ".venv/bin/python -m scripts.chart_names"
ENUMS = {"run": RUNNABLE, "profile": CHOICES}
"""Property of values.strict.schema.json → what it may be, beside empty."""
LISTS = {
    "What runs on the formed cluster": (RUNNABLE, ". Not set"),
    "Fabric profile": (CHOICES, ".\n"),
}
"""How a comment of values.yaml begins → the names that follow, and what is after them."""
WIDTH = 120


def schema(text: str) -> str:
    """values.strict.schema.json, with these names."""
    for name, known in ENUMS.items():
        listed = json.dumps([*known, "", None])
        before = rf'"{name}": \{{\s+"description": "[^\n]*\n[^\n]*\n\s+"enum": '
        text = _replaced(rf"({before})\[[^]]*\]", rf"\g<1>{listed}", text)
    return text


def of_helm(_: str) -> str:
    """values.schema.json: the strict one with open maps, whose unknown keys the templates refuse, without the prose."""
    opened = _opened(json.loads(STRICT.read_text()))
    # Where templates remember what they have found out.
    return json.dumps({**opened, "patternProperties": {"^a4[A-Z]": False}}) + "\n"


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    opened = {}
    for keyword, value in schema.items():
        if keyword == "description" or (keyword == "additionalProperties" and "properties" in schema):
            continue
        if keyword in ("properties", "patternProperties"):
            opened[keyword] = {name: _opened(inner) for name, inner in value.items()}
        else:
            opened[keyword] = _opened(value) if isinstance(value, dict) else value
    return opened


def values(text: str) -> str:
    """values.yaml, with these names in its comments, which are wrapped anew."""
    for begins, (known, after) in LISTS.items():
        text = _replaced(rf"(# -- {begins}): .*?{re.escape(after)}", rf"\g<1>: {', '.join(known)}{after}", text)
        text = re.sub(rf"^( *)# -- {begins}:.*\n(\1# .*\n)*", _wrapped, text, flags=re.MULTILINE)
    return text


def _replaced(pattern: str, by: str, text: str) -> str:
    new, count = re.subn(pattern, by, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{pattern} is {count} times in the chart's file, not once")
    return new


def _wrapped(comment: re.Match[str]) -> str:
    start = f"{comment[1]}# "
    words = " ".join(line.strip().removeprefix("# ") for line in comment[0].splitlines())
    lines = textwrap.wrap(
        words, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines) + "\n"


STRICT = CHART / "values.strict.schema.json"
FILES = {STRICT: schema, CHART / "values.schema.json": of_helm, CHART / "values.yaml": values}

if __name__ == "__main__":
    for path, renew in FILES.items():
        path.write_text(renew(path.read_text() if path.exists() else ""))
