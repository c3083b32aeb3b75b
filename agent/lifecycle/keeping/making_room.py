"""Results that lie in the pod itself must not fill its disk, or its memory."""

from __future__ import annotations

from collections.abc import Collection

from agent.decide.results_room import KEPT_RUNS, Removal, StoredRun, surplus
from agent.decide.words import count_text
from agent.log import Log
from agent.machine.api import Machine
from agent.paths import POD_LOGS
from agent.settings import Settings


def make_room(machine: Machine, log: Log, settings: Settings, unstored: Collection[str]) -> None:
    """Remove what earlier runs have stored beyond the limits, aside, and say so. Nothing of those that are `unstored`
    is removed."""
    top = f"{settings.results_dir}/runs"

    def remove() -> Removal:
        try:
            names = [name for name in machine.list_dir(top) if name not in unstored]
        except OSError:
            return Removal()
        size = machine.dir_size
        runs = [StoredRun(name, size(f"{top}/{name}"), size(f"{top}/{name}/{POD_LOGS}")) for name in names]
        found = surplus(runs, settings.log_limit_mb << 20)
        for name in found.runs:
            machine.remove_dir(f"{top}/{name}")
        for name in found.logs:
            machine.remove_dir(f"{top}/{name}/{POD_LOGS}")
        return found

    def tell(found: Removal) -> None:
        if found.logs:
            logs = f"logs of {count_text(len(found.logs), 'earlier run')}"
            log.info(f"to make room in {top}, {logs} are removed (A4_LOG_LIMIT_MB)")
        if found.runs:
            results = f"results of {count_text(len(found.runs), 'earlier run')}"
            log.info(f"to make room in {top}, {results} are removed: {KEPT_RUNS} are kept")

    machine.aside(remove, tell, lambda why: None)
