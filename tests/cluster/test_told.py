"""Workloads that save their state when they are told to end, and take their time for it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from agent.paths import SECRET_FILE
from tests.cluster.conftest import Start, all_codes
from tests.cluster.test_own_programs import program, with_mpi
from tests.cluster.work import GATE, SHELL, following, marked, open_gate, read_until, sleeping

GRACE = {"A4_GRACE_SECONDS": "600"}
"""No test comes to the end of it."""
SAVES = """
import os, signal, sys, time

def save(number, frame):
    open("/tmp/told", "w").close()
    while not os.path.exists("/tmp/go"):
        time.sleep(0.02)
    os.write(1, b"saved\\n")  # print refuses to be called where it may have been interrupted
    os._exit(0)

signal.signal(getattr(signal, sys.argv[1]), save)
open("/tmp/ready", "w").close()
while True:
    time.sleep(0.02)
"""
FILES = {"/workload/saves.py": SAVES.encode()}
SCRIPT = f"echo $$ >/tmp/bash; {sys.executable} /workload/saves.py"
BASH_IS_GONE = "! kill -0 $(cat /tmp/bash) 2>/dev/null"


def test_a_program_saves_its_state_though_its_script_ends_at_once(start: Start) -> None:
    trial = start(2, arguments=("script",), script=f"{SCRIPT} SIGTERM; true", files=FILES, env=GRACE)
    for index in range(2):
        trial.until(index, "test -e /tmp/ready")
    for index in range(2):
        trial.cluster.signal(index, signal.SIGTERM)
    for index in range(2):
        trial.until_event(index, "told-to-end")
        trial.until(index, BASH_IS_GONE)
        trial.until(index, "test -e /tmp/told")
    open_gate(trial)
    all_codes(trial, 143)
    assert trial.log().count("saved\n") == 2, trial.log()


def test_a_warning_reaches_the_program_and_spares_its_script(start: Start) -> None:
    trial = sleeping(start, 2, files=FILES, env={**GRACE, "A4_WARN_SIGNAL": "USR1", "A4_WARN_SECONDS": "300"})
    with following(trial, 1, "run", *SHELL, f"{SCRIPT} SIGUSR1; echo after") as (run, _):
        for index in range(2):
            trial.until(index, "test -e /tmp/ready")
        run.signal(signal.SIGINT)
        for index in range(2):
            trial.until(index, "test -e /tmp/told")
            trial.until(index, f"! {{ {BASH_IS_GONE}; }}")
        open_gate(trial)
        assert run.wait() == 130
        assert sorted(run.stdout.read().split()) == [b"after", b"after", b"saved", b"saved"]
        assert marked(trial, 0, 1) == {}


def test_every_rank_saves_its_state_though_others_end_before_it(start: Start, ompi5: Path) -> None:
    given = with_mpi("5", ompi5)
    files = {"/job/save": program("save_state.py", f"{ompi5}/bin/python")}
    trial = sleeping(start, 2, gpus_per_pod=2, **{**given, "files": files, "env": {**given["env"], **GRACE}})
    with following(trial, 1, "mpirun", "--", "/job/save") as (run, _):
        for _ in range(4):
            read_until(run.stdout, b"here\n")
        run.signal(signal.SIGINT)
        assert run.wait() == 130, run.stderr.read()
        assert trial.cluster.exec(0, ["sh", "-c", "ls /mnt | grep -c ^saved-"]).stdout.strip() == "4"
        assert marked(trial, 0, 1) == {}


TOLD_EARLY = f"""
{GATE}
mkfifo /tmp/secret
A4_SECRET_FILE=/tmp/secret {sys.executable} -m agent run none & agent=$!
exec 3>/tmp/secret  # opens when the agent reads its settings, before it can hear a signal
kill -TERM $agent
cat {SECRET_FILE} >&3
exec 3>&-
wait $agent
"""


def test_a_pod_that_is_told_before_its_agent_can_hear_ends_in_order(start: Start) -> None:
    agent = f"exec tini -- {sys.executable} -m agent run none"
    trial = start(2, entrypoint=("sh", "-c", f'[ "$JOB_COMPLETION_INDEX" = 0 ] && {agent}\n{TOLD_EARLY}'))
    trial.until_event(0, "facts-ready")  # it looks for pod 1, which does not stay long for one that comes later
    open_gate(trial, 1)
    assert trial.codes() == {0: 75, 1: 143}, trial.log()
    assert trial.said(1)["code"] == 143
    assert trial.said(0)["code"] == 75
