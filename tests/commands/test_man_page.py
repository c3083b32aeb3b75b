"""The manual page has every verb, option, workload and setting."""

from __future__ import annotations

import re

from agent.catalogue import RUNNABLE
from agent.commands import VERBS
from agent.settings import SETTINGS
from agent.workloads import find_workload
from scripts.man_page import page


def test_it_has_everything() -> None:
    text = page()
    sections = set(re.findall(r'^\.SS "(.*)"$', text, re.MULTILINE))
    assert {*VERBS, *RUNNABLE, "local run", "sync wait"} <= sections
    shown = text.replace("\\-", "-")
    options = [name for workload in RUNNABLE for one in find_workload(workload).options for name in one.names]
    for word in (*options, *(one.name for one in SETTINGS), "--watch", "--tail", "--pods", "--color", "--version"):
        assert re.search(rf"^\.B (.*, )?{re.escape(word)}\b", shown, re.MULTILINE), word


def test_every_line_is_text_or_a_known_command() -> None:
    commands = {line.split()[0] for line in page().splitlines() if line.startswith((".", "'"))}
    assert commands == {".TH", ".SH", ".SS", ".TP", ".B", ".br"}
