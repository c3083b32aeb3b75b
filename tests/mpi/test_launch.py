"""mpirun for real, on both versions: what ranks get, what a launch shows, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.launch import Launch
from tests.mpi.conftest import ONE_VERSION, MakePods, Mpi
from tests.mpi.pods import Pods

# Each rank writes a file of its own: mpirun cuts long lines of several ranks into one another. It is an MPI
# program because Open MPI 5.0.11 may hang when other programs end within milliseconds.
SHOW = """
import json, os, sys
from mpi4py import MPI
found = {**os.environ, "cwd": os.getcwd(), "node": os.uname().nodename}
with open(sys.argv[1] + os.environ["OMPI_COMM_WORLD_RANK"], "w") as file:
    json.dump(found, file)
"""
CANARIES = {
    "HF_TOKEN": "linnet-token",
    "OMPI_MCA_a4_test": "linnet-ompi",
    "PRTE_MCA_a4_test": "linnet-prte",
    "PMIX_MCA_a4_test": "linnet-pmix",
}


def shown(mpi: Mpi, pods: Pods, **changes: Any) -> list[dict[str, str]]:
    """What ranks see of themselves, by rank."""
    launch = mpi.launch(pods, [mpi.python, "-c", SHOW, f"{pods.home}/rank"], **changes)
    end = pods.run(launch)
    assert end.status == 0, end.output
    files = sorted(pods.home.glob("rank*"), key=lambda path: int(path.name[len("rank") :]))
    return [json.loads(path.read_text()) for path in files]


def test_every_rank_has_its_place_in_the_hostfile_the_environment_and_the_directory(mpi: Mpi, pods: Pods) -> None:
    odd = {"ODD": "a;b,c=d 'e' \"f\" $g `h`\nsecond line ü \\n", "EMPTY": "", "HF_TOKEN": "token"}
    env = {**pods.environment(**odd), "JOB_COMPLETION_INDEX": "0"}
    ranks = shown(mpi, pods, order=[0, 2, 1], env=env, cwd="/usr")
    assert [rank["node"] for rank in ranks] == ["node-0", "node-0", "node-2", "node-2", "node-1", "node-1"]
    for rank in ranks:
        assert {name: rank[name] for name in odd} == odd
        assert rank["cwd"] == "/usr"
        assert "JOB_COMPLETION_INDEX" not in rank


def test_one_pod_runs_without_ssh(mpi: Mpi, pods: Pods) -> None:
    ranks = shown(mpi, pods, hostfile=None, ranks=2, ssh_command=["/no/ssh"])
    assert [rank["node"] for rank in ranks] == ["node-0", "node-0"]


GATED = ["sh", "-c", "read -r line < /run/gate || true"]
"""A program whose ranks wait for the gate of their pod to be opened."""
OPEN = "exec 3>/run/gate"
"""Shell text that waits for a rank at the pod's gate; closing the descriptor lets it pass."""


def make_gates(pods: Pods) -> None:
    for pod in pods.pods:
        pod.run("mkfifo /run/gate")


def command_lines() -> str:
    """The command lines of all processes of this machine, pods included."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
    return "\n".join(found)


def test_nothing_secret_stands_on_a_command_line(mpi: Mpi, pods: Pods) -> None:
    agent = pods.home / "agent"
    agent.write_text(f'#!/bin/sh\necho "$@" >> {pods.home}/agent.log\nexec {" ".join(pods.ssh_command)} "$@"\n')
    agent.chmod(0o755)
    make_gates(pods)
    env = {**pods.environment(), **CANARIES}
    with pods.started(mpi.launch(pods, GATED, slots=1, ssh_command=[str(agent)], env=env)) as process:
        # With this rank at its gate, all daemons run; its own pod's processes are among this machine's.
        seen = pods.pods[1].run(f"{OPEN}; cat /proc/[0-9]*/environ || true  # some end meanwhile")
        everywhere = command_lines()
        pods.pods[0].run(OPEN)
        pods.pods[2].run(OPEN)
        assert pods.finish(process).status == 0
    agents = (pods.home / "agent.log").read_text()
    assert len(agents.splitlines()) == 2, "one SSH connection to each other pod, none to its own"
    assert "linnet" not in everywhere + agents
    assert "HF_TOKEN=linnet-token" in seen, "the rank has it"


CONNECT = """
from mpi4py import MPI
MPI.COMM_WORLD.allreduce(1)
open("/run/gate").read()
MPI.COMM_WORLD.barrier()
"""


def test_all_traffic_is_on_one_interface(mpi: Mpi, make_pods: MakePods) -> None:
    pods = make_pods(3)
    pods.connect("eth1", "198.19.0")
    make_gates(pods)
    with pods.started(mpi.launch(pods, [mpi.python, "-c", CONNECT], slots=1)) as process:
        seen = "".join(pod.run(f"{OPEN}; ss -Htn state established") for pod in pods.pods)
        assert pods.finish(process).status == 0
    assert "198.18.0.3" in seen
    assert "198.19.0." not in seen


@ONE_VERSION
def test_more_than_64_pods(mpi: Mpi, make_pods: MakePods) -> None:
    pods = make_pods(66)
    # No MPI program: 66 Pythons are much work for nothing. Open MPI 5 needs a moment before the end, see above.
    program = ["sh", "-c", f"hostname >{pods.home}/rank$OMPI_COMM_WORLD_RANK; sleep {(mpi.version.major - 4) * 5}"]
    end = pods.run(mpi.launch(pods, program, slots=1))
    assert end.status == 0, end.output
    assert [(pods.home / f"rank{rank}").read_text() for rank in range(66)] == [f"{pod.node}\n" for pod in pods.pods]


# One rank ends when all are there, and before they connect: Open MPI 5 may tell the end of a rank that lost its
# connection instead, and forget a rank that ends as soon as it is started.
ENDS = """
import os, signal, sys
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 3:
    code = int(sys.argv[1])
    os._exit(code) if code < 128 else os.kill(os.getpid(), code - 128)
signal.pause()
"""


@pytest.mark.parametrize("code", [7, *(pytest.param(128 + number, marks=pytest.mark.faults) for number in (9, 15))])
def test_a_ranks_end_is_the_end(mpi: Mpi, pods: Pods, code: int) -> None:
    """Whatever code it is, and whichever signal: see the decisions' tests, and those of the connectivity test."""
    assert mpi.code(pods.run(mpi.launch(pods, [mpi.python, "-c", ENDS, str(code)]))) == code


def missing_program(mpi: Mpi, pods: Pods) -> Launch:
    return mpi.launch(pods, ["/no/program"])


def missing_name(mpi: Mpi, pods: Pods) -> Launch:
    return mpi.launch(pods, ["no-such-program"])


def missing_on_one_pod(mpi: Mpi, pods: Pods) -> Launch:
    for pod in pods.pods[:2]:
        pod.run("printf '#!/bin/sh\nexec sleep 600\n' > /run/program; chmod +x /run/program")
    return mpi.launch(pods, ["/run/program"])


def not_executable(mpi: Mpi, pods: Pods) -> Launch:
    return mpi.launch(pods, [str(pods.home / "hosts")])


def missing_interpreter(mpi: Mpi, pods: Pods) -> Launch:
    program = pods.home / "program"
    program.write_text("#!/no/interpreter\n")
    program.chmod(0o755)
    return mpi.launch(pods, [str(program)])


def missing_directory(mpi: Mpi, pods: Pods) -> Launch:
    return mpi.launch(pods, ["true"], cwd="/no/directory")


def refused(mpi: Mpi, pods: Pods) -> Launch:
    return with_ssh(mpi, pods, "Port 1")


def wrong_host_key(mpi: Mpi, pods: Pods) -> Launch:
    return with_ssh(mpi, pods, "UserKnownHostsFile /dev/null")


def with_ssh(mpi: Mpi, pods: Pods, option: str) -> Launch:
    """One host gets another SSH option."""
    config = pods.home / "other_config"
    config.write_text(f"Host {pods.names[2]}\n  {option}\n" + (pods.home / "ssh_config").read_text())
    return mpi.launch(pods, ["true"], ssh_command=["ssh", "-F", str(config)])


def no_ssh(mpi: Mpi, pods: Pods) -> Launch:
    return mpi.launch(pods, ["true"], ssh_command=["/no/ssh"])


def no_daemon(mpi: Mpi, pods: Pods) -> Launch:
    four = mpi.version.major == 4
    option = ["--mca", "orte_launch_agent"] if four else ["--prtemca", "prte_launch_agent"]
    launch = mpi.launch(pods, ["true"])
    return launch._replace(argv=[launch.argv[0], *option, "/no/daemon", *launch.argv[1:]])


def too_few_slots(mpi: Mpi, pods: Pods) -> Launch:
    return mpi.launch(pods, ["true"], ranks=7)


def no_interface(mpi: Mpi, pods: Pods) -> Launch:
    return mpi.launch(pods, ["true"], interface="eth9")


def no_hostfile(mpi: Mpi, pods: Pods) -> Launch:
    return mpi.launch(pods, ["true"], hostfile="/no/hostfile")


def time_limit(mpi: Mpi, pods: Pods) -> Launch:
    launch = mpi.launch(pods, ["sleep", "600"])
    return launch._replace(argv=[launch.argv[0], "--timeout", "1", *launch.argv[1:]])


OF_EACH_CODE = [(missing_on_one_pod, 66), (wrong_host_key, 71), (time_limit, 124)]
OTHERS = [
    (missing_program, 66),
    (missing_name, 66),
    (not_executable, 66),
    (missing_interpreter, 66),
    (missing_directory, 66),
    (refused, 71),
    (no_ssh, 71),
    (no_daemon, 71),
    (too_few_slots, 71),
    (no_interface, 71),
    (no_hostfile, 71),
]


@pytest.mark.parametrize(
    ("cause", "code"), [*OF_EACH_CODE, *(pytest.param(*case, marks=pytest.mark.faults) for case in OTHERS)]
)
def test_launches_that_fail(mpi: Mpi, pods: Pods, cause: Callable[[Mpi, Pods], Launch], code: int) -> None:
    assert mpi.code(pods.run(cause(mpi, pods))) == code


@pytest.mark.faults
def test_a_link_that_dies_is_a_lost_pod(mpi: Mpi, make_pods: MakePods) -> None:
    pods = make_pods(3)
    make_gates(pods)
    with pods.started(mpi.launch(pods, GATED, slots=1)) as process:
        pods.pods[1].run(f"{OPEN}; sleep 600 >/dev/null 2>&1 &")  # the rank is there and stays
        pods.cut(1)
        end = pods.finish(process)
    assert mpi.code(end, started=True) == 75
