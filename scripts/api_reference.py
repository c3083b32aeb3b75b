"""The reference in docs/api.md: this writes what stands between its markers, from signatures and docstrings.

.venv/bin/python -m scripts.api_reference

<!-- reference: NAME NAME … --> begins a list of these names of `agent` or `agent.testing`, of errors a table. The prose
and the examples around the lists are written by hand.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import agent
import agent.testing
from agent.wire import is_record
from scripts.result_schema import field_texts

COMMAND = ".venv/bin/python -m scripts.api_reference"
PATH = Path(__file__).parents[1] / "docs/api.md"
PART = re.compile(r"(?s)(<!-- reference: ([\w ]+) -->\n\n).*?(<!-- end of reference -->)")
ERRORS = "|".join(["AgentError", *(kind.__name__ for kind in agent.AgentError.__subclasses__())])
ELSEWHERE = {"Settings": "settings.md", "Result": "result.schema.json"}
"""Records whose fields have a page of their own."""
HIDDEN = {
    "Client": {"wake_by", "why_records"},
    "ClusterSpec": {"named", "nics", "nic", "prefix", "domain", "spare", "index_of", "node_name", "place", "starts"},
    "LocalCluster": {
        *("start_pods", "build", "index_of", "supervisor_pid", "popen", "exec_with", "exec_on_terminal", "read_bytes"),
        *("output", "ask", "ask_pods"),
    },
    "Settings": {"is_coordinator", "stall_seconds", "sleeps_after"},
}
"""What only the agent's own code uses; so are `to_json` and `from_json` of all but plans."""


def text(page: str) -> str:
    """The page with its lists as they should be."""
    return PART.sub(lambda part: f"{part[1]}{reference(part[2].split())}\n{part[3]}", page)


def listed(page: str) -> list[str]:
    """The names that it has."""
    return [name for part in PART.finditer(page) for name in part[2].split()]


def reference(names: list[str]) -> str:
    kinds = {name: getattr(agent if name in agent.__all__ else agent.testing, name) for name in names}
    if all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds.values()):
        rows = [f"| `{name}` | {int(kind.code)} | {_prose(kind.__doc__)} |" for name, kind in kinds.items()]
        return "\n".join(["| raised | code | when |", "|---|---|---|", *rows]) + "\n"
    return "".join(line for name, kind in kinds.items() for line in _entry(name, kind))


def _entry(name: str, kind: Any) -> Iterator[str]:
    if inspect.isfunction(kind):
        yield from _function("* ", name, kind)
        return
    about, rows = _divided(kind.__doc__ or "")
    if is_record(kind) or getattr(kind, "_is_protocol", False) or issubclass(kind, Enum):
        page = ELSEWHERE.get(name)
        yield _item("* ", name, f": {about}" + (f" Its fields: [{page}]({page})." if page else ""))
    else:
        yield _item("* ", name + _code(_signature(kind)), f": {about} {_prose(kind.__init__.__doc__)}".rstrip())
    if is_record(kind) and name not in ELSEWHERE:
        texts = {**field_texts(kind), **rows}
        for field, shown in _signature(kind).parameters.items():
            yield _item("    * ", _code(shown), f": {_prose(texts[field])}" if field in texts else "")
    members: dict[str, Any] = {}
    for base in kind.__mro__ if kind.__module__.startswith("agent.") else ():
        members |= {member: found for member, found in vars(base).items() if member not in members}
    hidden = HIDDEN.get(name, set()) | ({"to_json", "from_json"} if name != "Plan" else set())
    for member, found in members.items():
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if not member.startswith("_") and member not in hidden and inspect.isfunction(function) and function.__doc__:
            yield from _function("    * ", member, function, called=not isinstance(found, property))


def _function(bullet: str, name: str, function: Any, *, called: bool = True) -> Iterator[str]:
    about, rows = _divided(function.__doc__)
    returned = inspect.signature(function).return_annotation
    arrow = "" if returned in ("None", inspect.Signature.empty) else f" → `{returned}`"
    yield _item(bullet, name + _code(_signature(function)) * called, f"{arrow}. {about}")
    yield from (_item(f"    {bullet}", parameter, f": {row}") for parameter, row in rows.items())


def _item(bullet: str, code: str, rest: str) -> str:
    wrap = textwrap.TextWrapper(120, "", " " * len(bullet), break_long_words=False, break_on_hyphens=False)
    return wrap.fill(f"{bullet}`{code}`{rest}") + "\n"


def _divided(doc: str) -> tuple[str, Mapping[str, str]]:
    """The prose of a docstring, and its rows `name: text`, which stand together."""
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    rows: dict[str, str] = {}
    for paragraph in [each for each in paragraphs if re.match(r"\w+: ", each)]:
        paragraphs.remove(paragraph)
        rows |= dict(row.split(": ", 1) for row in re.sub(r"\n +", " ", paragraph).splitlines())
    return _prose("\n".join(paragraphs)), {name: _prose(row) for name, row in rows.items()}


def _prose(doc: str | None) -> str:
    """On one line, with other pages as links, and names of errors as code."""
    linked = re.sub(r"\bdocs/([\w-]+(?:\.\w+)+)(#[\w-]+)?", r"[\1](\1\2)", " ".join((doc or "").split()))
    return re.sub(rf"(?<!`)\b({ERRORS}|BrokenPipeError|TimeoutError|ValueError)\b", r"`\1`", linked)


def _signature(kind: Any) -> inspect.Signature:
    """Without types."""
    given = inspect.signature(kind).parameters.values()
    return inspect.Signature(
        [each.replace(annotation=each.empty) for each in given if each.name not in ("self", "cls")]
    )


def _code(shown: object) -> str:
    return str(shown).replace("<factory>", "{}").replace("<built-in function monotonic>", "time.monotonic")


if __name__ == "__main__":
    PATH.write_text(text(PATH.read_text()))
