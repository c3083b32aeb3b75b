"""Pages about Kubernetes: their commands, and what a shell makes of them.

Pages of docs/zh have the same blocks: tests/test_translations.py compares them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chart.helm import ROOT, Words

PAGES = [
    *sorted((ROOT / "docs/deployments").glob("*.md")),
    *(ROOT / name for name in ("README.md", "examples/README.md")),
    *(
        ROOT / "docs" / name
        for name in ("chart.md", "gke.md", "jobset.md", "lives.md", "megatron-bridge.md", "tcpx.md")
    ),
]
NEEDS_CLOUD = {"gcloud", "kubectl"}
OF_THE_SHELL = {"done", "export", "for", "ln", "mv"}
RUN_ELSEWHERE = {"make", "source", ".", "ssh", "exec"}
"""Commands in README.md, which whoever runs tests and tests/commands/test_completion.py run."""
KNOWN = {"helm", "a4-agent", *NEEDS_CLOUD, *OF_THE_SHELL, *RUN_ELSEWHERE}
RELEASES = {"install", "upgrade"}
OTHER_VERBS = {"test", "uninstall"}
VALUED_FLAGS = {"-f", "--values", "--set", "--set-file", "--set-string", "-n", "--namespace"}
ENVIRONMENT = {
    "FILESTORE_IP": "10.0.0.2",
    "GCS_BUCKET": "my-bucket",
    "HF_TOKEN": "hf_canary_of_the_docs",
    "NODES": "2",
    "PREFIX": "a4high",
    "WORKLOAD_IMAGE": "registry.example/unified-testbed-pytorch:25.12-a4.1",
}


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str
    output: str = ""
    """What the page shows below it, if it was typed after `$ `."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Indented blocks of a page, with the number of their first line."""
    fenced, found, start = False, list[str](), 0
    for number, line in enumerate([*text.splitlines(), "end"], 1):
        fenced ^= line.startswith("```")
        if line.startswith("    ") and not fenced:
            start = start if found else number
            found.append(line[4:])
        elif found and not line:
            found.append("")
        elif found:
            yield start, found
            found = []


def commands_of(page: str, text: str) -> Iterator[Command]:
    for start, lines in blocks(text):
        typed = any(line.startswith("$ ") for line in lines)
        at = 0
        while at < len(lines):
            first, line = at, lines[at]
            while line.endswith("\\"):
                at += 1
                line = line[:-1] + lines[at].lstrip()
            at += 1
            if not typed:
                if line and not line.startswith("#"):
                    yield Command(page, start + first, line)
            elif line.startswith("$ "):
                below = at
                while at < len(lines) and not lines[at].startswith("$ "):
                    at += 1
                yield Command(page, start + first, line[2:], "\n".join(lines[below:at]).strip("\n"))


def all_commands() -> list[Command]:
    """Those of all pages; a block that begins with no known command is output."""
    return [
        command
        for page in PAGES
        for command in commands_of(page.relative_to(ROOT).as_posix(), page.read_text())
        if command.text.split()[0] in KNOWN
    ]


def words_of(command: Command, place: Path, environment: Mapping[str, str] = ENVIRONMENT) -> Words:
    """What a command of Helm gives to it, as a shell understands the line."""
    shown = subprocess.run(
        ["bash", "-euc", f'{command.words[0]}() {{ printf "%s\\0" "$@"; }}\n{command.text}'],
        cwd=place,
        env={**environment, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    _, *rest = shown.split("\0")[:-1]
    flags, names, namespace = list[str](), list[str](), "default"
    while rest:
        word = rest.pop(0)
        if word in ("-n", "--namespace"):
            namespace = rest.pop(0)
        elif word in VALUED_FLAGS:
            flags += ["-f" if word == "--values" else word, rest.pop(0)]
        else:
            names.append(word)
    release, chart = names
    return Words(tuple(flags), release, chart, namespace, str(place))
