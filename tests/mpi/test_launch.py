"""mpirun for real, on both versions: what ranks get, what a launch shows, and how it fails."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent.decide.mpirun_end import mpirun_end
from tests.mpi.conftest import WITH_4, MakePods, Mpi
from tests.mpi.pods import PLAIN_PATH, Pods
from tests.mpi.runs import WAITS, Run

# Each rank writes a file of its own: mpirun cuts long lines of several ranks into one another.
SHOW = """
import json, os, sys
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


def test_every_rank_has_its_place_in_the_hostfile_the_environment_and_the_directory(mpi: Mpi, pods: Pods) -> None:
    odd = {"ODD": "a;b,c=d 'e' \"f\" $g `h`\nsecond line ü \\n", "EMPTY": "", "HF_TOKEN": "token"}
    env = {**odd, "JOB_COMPLETION_INDEX": "0"}
    program = [mpi.python, "-c", SHOW, f"{pods.home}/rank"]
    assert Run(mpi, pods, program, order=[0, 2, 1], env=env, cwd="/usr").whole().end.code == 0
    ranks = [json.loads((pods.home / f"rank{rank}").read_text()) for rank in range(6)]
    assert [rank["node"] for rank in ranks] == ["node-0", "node-0", "node-2", "node-2", "node-1", "node-1"]
    for rank in ranks:
        assert {name: rank[name] for name in odd} == odd
        assert rank["cwd"] == "/usr"
        assert "JOB_COMPLETION_INDEX" not in rank


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
    ssh = pods.pods[0].path("/run/ssh")
    ssh.write_text('#!/bin/sh\necho "$@" >>/run/ssh.log\nexec /usr/bin/ssh "$@"\n')
    ssh.chmod(0o755)
    run = Run(mpi, pods, WAITS, env={**CANARIES, "PATH": f"/run:{PLAIN_PATH}"})
    with run.started() as process:
        run.until_there()
        # All daemons run; the pods' processes are among this machine's.
        everywhere = command_lines()
        seen = pods.pods[1].run("cat /proc/[0-9]*/environ || true  # some end meanwhile")
        run.let_go()
        assert run.finish(process).end.code == 0
    typed = pods.pods[0].path("/run/ssh.log").read_text()
    assert len(typed.splitlines()) == 2, "one SSH connection to each other pod, none to its own"
    assert "linnet" not in everywhere + typed
    assert "HF_TOKEN=linnet-token" in seen, "the rank has it"


CONNECT = """
import os, sys
from mpi4py import MPI
MPI.COMM_WORLD.allreduce(1)
os.mkfifo(gate := f"/run/gate-{MPI.COMM_WORLD.rank}")
open(gate).read()
MPI.COMM_WORLD.barrier()
"""


def test_all_traffic_is_on_one_interface(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, [mpi.python, "-c", CONNECT], per_node=1)
    with run.started() as process:
        run.until_there()
        seen = "".join(pod.run("ss -Htn state established") for pod in pods.pods)
        run.let_go()
        assert run.finish(process).end.code == 0
    assert "198.18.0.3" in seen
    assert "198.19.0." not in seen


@WITH_4
def test_more_than_64_pods(mpi: Mpi, make_pods: MakePods) -> None:
    pods = make_pods(66)
    # No MPI program: 66 Pythons are much work for nothing. Open MPI 5 may forget ranks that end within milliseconds.
    program = ["sh", "-c", f"hostname >{pods.home}/rank$OMPI_COMM_WORLD_RANK; sleep {(mpi.version.major - 4) * 5}"]
    end = Run(mpi, pods, program, per_node=1).whole().end
    assert end.code == 0, end
    assert [(pods.home / f"rank{rank}").read_text() for rank in range(66)] == [f"{pod.node}\n" for pod in pods.pods]


TRUE = ["true"]
FAILING: Mapping[str, tuple[int, Sequence[str], Mapping[str, str]]] = {
    "host key": (71, TRUE, {"ssh_config": "without_keys"}),
    "time limit": (124, ["--timeout", "1", "sleep", "600"], {}),
    "program": (66, ["/no/program"], {}),
    "program in PATH": (66, ["no-such-program"], {}),
    "program of one pod": (66, ["/run/program"], {}),
    "right to execute": (66, ["{home}/hosts"], {}),
    "interpreter": (66, ["{home}/program"], {}),
    "directory": (66, TRUE, {"/srv": "/no/directory"}),
    "port": (71, TRUE, {"ssh_config": "without_port"}),
    "ssh": (71, TRUE, {"ssh -F": "/no/ssh -F"}),
    "daemon": (71, TRUE, {"/enter-run.sh": "/no-such.sh"}),
    "slots": (71, TRUE, {"/hostfile": "/hostfile-1pernode"}),
    "interface": (71, TRUE, {"eth0": "eth9"}),
    "hostfile": (71, TRUE, {"/hostfile": "/no-hostfile"}),
}
"""What is missing or wrong → our code for mpirun's end, the end of the command line, and what else is changed."""
NOW = ("host key", "time limit")


@WITH_4
@pytest.mark.parametrize("what", [*NOW, *(pytest.param(w, marks=pytest.mark.faults) for w in FAILING if w not in NOW)])
def test_launches_that_fail(mpi: Mpi, pods: Pods, what: str) -> None:
    code, program, exchanged = FAILING[what]
    for name, option in (("without_keys", "UserKnownHostsFile /dev/null"), ("without_port", "Port 1")):
        text = f"Host {pods.names[2]}\n  {option}\n" + (pods.home / "ssh_config").read_text()
        (pods.home / name).write_text(text)
    (pods.home / "program").write_text("#!/no/interpreter\n")
    (pods.home / "program").chmod(0o755)
    run = Run(mpi, pods, TRUE, cwd="/srv")
    for pod in pods.pods[:2]:
        pod.run("printf '#!/bin/sh\nexec sleep 600\n' >/run/program; chmod +x /run/program")
    words = list(run.launch.argv[: run.launch.argv.index("sh", 1)])
    for old, new in exchanged.items():
        words = [word.replace(old, new) for word in words]
    launch = run.launch._replace(argv=[*words, *(word.format(home=pods.home) for word in program)])
    run.whole(launch)
    assert run.end
    assert mpirun_end(mpi.version, run.end.status, run.end.output).code == code, run.end


@pytest.mark.faults
def test_a_link_that_dies_is_a_lost_pod(mpi: Mpi, make_pods: MakePods) -> None:
    pods = make_pods(3)
    run = Run(mpi, pods, WAITS, per_node=1)
    with run.started() as process:
        run.until_there()
        pods.cut(1)
        assert run.finish(process).end.code == 75
