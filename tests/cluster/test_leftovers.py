"""What runs leave behind in pods: processes in a session of their own, without the run's environment."""

from __future__ import annotations

import sys

import pytest

from tests.cluster.conftest import Start, all_codes
from tests.cluster.work import SHELL, agent, sleeping

READ_ONLY = "mount -o remount,bind,ro /sys/fs/cgroup"
"""As a pod without privileges sees it."""
NOT_MOUNTED = "umount /sys/fs/cgroup"
AGENT = f"exec tini -- {sys.executable} -m agent run none"
LEAVE = "env -i {also} setsid sleep 600 >/dev/null 2>&1 &"
SLEEPING = "pgrep -x sleep | tr '\\n' ' '"
RUNS = "ls -d /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/a4-* 2>/dev/null"
UNPRIVILEGED = "setpriv --bounding-set=-setgid"


@pytest.mark.parametrize("surroundings", [pytest.param("true", id="cgroup"), pytest.param(READ_ONLY, id="read-only")])
def test_nothing_is_left_when_the_next_run_begins(start: Start, surroundings: str) -> None:
    trial = sleeping(start, 2, entrypoint=("sh", "-c", f"{surroundings}; {AGENT}"), env={"A4_LOG_LEVEL": "debug"})
    # Only a cgroup is not to be got out of.
    leave = LEAVE.format(also="setpriv --clear-groups" if surroundings == "true" else "")
    # What a rank starts on another pod through SSH by itself has the variable A4_RUN alone.
    by_ssh = ["ssh", trial.cluster.spec.pod_name(1), "setsid sleep 600 </dev/null >/dev/null 2>&1 &"]
    for command in (
        ["run", *SHELL, leave],
        ["mpirun", "--", "bash", "-c", leave],
        ["mpirun", "-np", "1", "--", *by_ssh],
    ):
        done = agent(trial, 0, *command)
        assert done.returncode == 0, done
        for index in range(2):
            assert trial.cluster.exec(index, ["sh", "-c", SLEEPING]).stdout == "", f"{command} on pod {index}"
            assert trial.cluster.exec(index, ["sh", "-c", RUNS]).stdout == ""
    said = "known by cgroup /sys/fs/cgroup/" if surroundings == "true" else "known by group "
    assert trial.log().count(said) >= 4, trial.log()
    trial.cluster.terminate()
    all_codes(trial, 143)


def test_a_pod_that_may_do_nothing_has_the_environment(start: Start) -> None:
    command = f"{NOT_MOUNTED}; {AGENT.replace('exec', f'exec {UNPRIVILEGED}')}"
    trial = sleeping(start, 1, entrypoint=("sh", "-c", command), env={"A4_LOG_LEVEL": "debug"})
    done = agent(trial, 0, "run", *SHELL, "setsid sleep 600 >/dev/null 2>&1 &")
    assert done.returncode == 0, done
    assert trial.cluster.exec(0, ["sh", "-c", SLEEPING]).stdout == ""
    assert "known by A4_RUN in their environment" in trial.log()
    trial.cluster.terminate()
    all_codes(trial, 143)
