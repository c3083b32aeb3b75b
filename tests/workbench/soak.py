"""Faults at random, in local clusters of four pods: `make test-long`.

    python -m tests.workbench.soak [--faults N] [--seed SEED] [--only NUMBER] [--keep DIR]

Each cluster has one run, and one fault in one pod at one moment, all drawn from the seed and the fault's number:
`--seed` and `--only` bring one of them about again. Every pod must end in time, with 0 only if all of the run was done,
and leave nothing. Ends with 0 when that was so each time, else with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agent.errors import AgentError, Exit
from agent.workbench.local.client import LocalCluster
from tests.cluster.conftest import RUN_DIR
from tests.cluster.work import RING_FILES
from tests.deadlines import at_any_moment
from tests.torch_environment import TORCH_PYTHON
from tests.workbench.local.helpers import cluster_of, leaves_nothing

PODS, GPUS = 4, 2
LEASE = 8.0
LIMITS = {"A4_LEASE_SECONDS": at_any_moment(LEASE), "A4_PEER_TIMEOUT_SECONDS": at_any_moment(30)}
END_SECONDS = 120.0
PHASE_SECONDS = 120.0
ROOT = Path(__file__).parents[2]
OMPI5 = Path(os.environ.get("A4_TEST_OMPI5", ROOT / ".venv-ompi5"))
RING = "/job/ring.py 4 30"
SAVING = f"/job/saving.py {2 * LEASE:g}"
"""It lasts until an agent that was stopped for a lease goes on, and every pod has noticed."""
SAVING_FILES = {"/job/saving.py": Path(__file__).with_name("programs").joinpath("saving.py").read_bytes()}
SCRIPTS = {"script": RING, "saving": SAVING, "saving-asleep": SAVING}
RUNS = {
    "script": ("script",),
    "saving": ("script",),
    "connectivity": ("connectivity", "--", "--repeats", "300"),
    "torchrun": ("none",),
    "saving-asleep": ("none",),
}
"""What the pods run first. After `none` the cluster sleeps: pod 0 submits the run to it, and ends it."""
SUBMITTED = {"torchrun": f"torchrun -- {RING}", "saving-asleep": "run script"}
CODE, RESULTS = "/mnt/code", "/mnt/results"
"""Where a pod that is started again leaves them."""
ASLEEP = f"""
[ "$JOB_COMPLETION_INDEX" = 0 ] && (
    until grep -qs '"phase": "sleeping"' {RUN_DIR}/state.json; do sleep 0.1; done
    $AGENT $SUBMITTED
    echo $? >>{CODE}
    until $AGENT release; do sleep 1; done
) </dev/null >/mnt/client.log 2>&1 &
exec tini -- $AGENT run none
"""
PHASES = {
    "starting": "true",
    "forming": f"grep -qs facts-ready {RUN_DIR}/events.jsonl",
    "running": f"grep -qs run-started {RUN_DIR}/events.jsonl",
    "ending": f"grep -qs result-known {RUN_DIR}/events.jsonl",
}
"""What is true in the pod when a phase has begun."""
ASLEEP_PHASES = {
    **PHASES,
    "running": "test -e /mnt/turns-$JOB_COMPLETION_INDEX",
    "ending": "test -e /mnt/done-$JOB_COMPLETION_INDEX",
}


def in_pod(command: str) -> Callable[[LocalCluster, int], object]:
    return lambda cluster, pod: cluster.exec(pod, ["bash", "-c", command], timeout=END_SECONDS)


def agent_gets(name: str) -> Callable[[LocalCluster, int], object]:
    return in_pod(f"kill -{name} $(cut -d ' ' -f 2 {RUN_DIR}/lock)")


def tell_all(cluster: LocalCluster, pod: int) -> None:
    for index in range(PODS):
        cluster.signal(index, signal.SIGTERM)


def nothing(cluster: LocalCluster, pod: int) -> None:
    pass


ABOUT_A_LEASE = "agent-stopped-for-a-lease"
"""Whether the pod is lost is decided within moments, at two places: both of them must come to the same."""
Change = Callable[[LocalCluster, int], object]
FAULTS: dict[str, tuple[Change, Change]] = {
    "pod-killed": (LocalCluster.kill_pod, nothing),
    "pod-restarted": (LocalCluster.kill_pod, LocalCluster.start_pod),
    "pod-told-to-end": (lambda cluster, pod: cluster.signal(pod, signal.SIGTERM), nothing),
    "all-told-to-end": (tell_all, nothing),
    "agent-killed": (agent_gets("KILL"), nothing),
    "agent-stopped": (agent_gets("STOP"), agent_gets("CONT")),
    ABOUT_A_LEASE: (agent_gets("STOP"), agent_gets("CONT")),
    "sshd-killed": (in_pod("pkill -KILL -o -x sshd"), nothing),
    "daemon-killed": (in_pod("pkill -KILL '^(orted|prted|mpirun|orterun|prterun)$'"), nothing),
    "ranks-killed": (in_pod("pkill -KILL -f 'connectivity.py|python[^ ]* (-u )?/job/(ring|saving).py'"), nothing),
    "link-down": (lambda cluster, pod: cluster.link(pod, up=False), nothing),
    "link-away": (
        lambda cluster, pod: cluster.link(pod, up=False),
        lambda cluster, pod: cluster.link(pod, up=True),
    ),
    "name-away": (
        lambda cluster, pod: cluster.set_name(pod, visible=False),
        lambda cluster, pod: cluster.set_name(pod, visible=True),
    ),
}
"""What happens, and what ends it again."""
LOSSES = ("pod-killed", "pod-restarted", "agent-killed", "agent-stopped", ABOUT_A_LEASE, "link-down", "link-away")
"""A pod is lost, unless they end within a lease."""


class Fault(NamedTuple):
    """One of those that a seed stands for."""

    number: int
    kind: str
    phase: str
    pod: int
    after: float
    """Seconds since the phase began."""
    lasts: float
    run: str
    mpi: int

    @property
    def loses_a_pod(self) -> bool:
        return self.kind in LOSSES and (
            FAULTS[self.kind][1] is nothing or self.kind == "pod-restarted" or self.lasts > LEASE
        )

    def __str__(self) -> str:
        lasts = "" if FAULTS[self.kind][1] is nothing else f" for {self.lasts:.1f} s"
        when = f"{self.after:.2f} s after {self.phase} of {self.run} (Open MPI {self.mpi})"
        return f"{self.kind}{lasts} in pod {self.pod}, {when}"


def draw(seed: int, number: int) -> Fault:
    chance = random.Random(f"{seed}/{number}")
    lasts = chance.choice([chance.uniform(0, LEASE / 2), chance.uniform(1.5 * LEASE, 2 * LEASE)])
    kind, phase = chance.choice([*FAULTS, *[ABOUT_A_LEASE] * (len(FAULTS) // 3)]), chance.choice(list(PHASES))
    if kind == ABOUT_A_LEASE:
        lasts = chance.uniform(0.95 * LEASE, 1.1 * LEASE)
    pod, run, mpi = chance.randrange(PODS), chance.choice(list(RUNS)), chance.choice((4, 5))
    after = 3 * chance.random() ** 3  # often at once: some phases are short
    return Fault(number, kind, phase, pod, after, lasts, run, mpi)


def cluster_for(fault: Fault) -> LocalCluster:
    more: dict[str, Any] = {"entrypoint": (), "arguments": RUNS[fault.run]}
    env = {"A4_REPORT": "false", "A4_RESULTS_DIR": RESULTS, **LIMITS}
    python = f"{OMPI5}/bin/python" if fault.mpi == 5 else sys.executable
    if fault.mpi == 5:
        more = {"entrypoint": ("tini", "--", python, "-m", "agent", "run", *RUNS[fault.run])}
        env["PATH"] = f"{OMPI5}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    if fault.run in SUBMITTED:
        more = {"entrypoint": ("sh", "-c", ASLEEP)}
        env |= {"SLEEP_INFINITY": "true", "A4_PYTHON": str(TORCH_PYTHON), "AGENT": f"{python} -m agent"}
        env["SUBMITTED"] = SUBMITTED[fault.run]
    files = {**RING_FILES, **SAVING_FILES}
    if fault.run in SCRIPTS:
        files["/workload/task/task-script.sh"] = f"exec {sys.executable} {SCRIPTS[fault.run]}\n".encode()
    return cluster_of(PODS, gpus_per_pod=GPUS, files=files, env=env, **more)


def bring_about(cluster: LocalCluster, fault: Fault) -> None:
    begin, end = FAULTS[fault.kind]
    begun = (ASLEEP_PHASES if fault.run in SUBMITTED else PHASES)[fault.phase]
    look = f"for i in $(seq {PHASE_SECONDS / 0.05:.0f}); do {begun} && exit; sleep 0.05; done"
    attempt(in_pod(look), cluster, fault.pod)
    pause(cluster, fault.after)
    attempt(begin, cluster, fault.pod)
    if end is not nothing:
        pause(cluster, fault.lasts)
        attempt(end, cluster, fault.pod)


def attempt(change: Change, cluster: LocalCluster, pod: int) -> None:
    """What cannot be done any more, since the pod has ended, is no error."""
    with contextlib.suppress(AgentError, OSError):
        change(cluster, pod)


def pause(cluster: LocalCluster, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        cluster.wait(seconds)


def problems(fault: Fault, log: Path) -> list[str]:
    """Run one cluster to its end: what is wrong with that. What its pods printed goes to `log`."""
    found = []
    with cluster_for(fault) as cluster:
        cluster.start()
        try:
            with leaves_nothing(cluster):
                bring_about(cluster, fault)
                try:
                    cluster.wait(END_SECONDS)
                except TimeoutError:
                    found.append(f"not all pods have ended {END_SECONDS:.0f} s later")
                pods = {pod.index: pod.code for pod in cluster.pods()}
                codes = of_submitted(cluster) if fault.run in SUBMITTED else pods
                said = b"".join(b"[%d] %s" % (output.pod, output.data) for output in cluster.output())
                log.write_bytes(f"{fault}: {pods}, {codes}\n".encode() + said)
                if 0 in codes.values() and (undone := what_is_undone(cluster, fault)):
                    found.append(f"a pod ended with 0, but {undone}")
                if Exit.USAGE in codes.values():
                    found.append("nothing was tried: the command that submits the run is refused")
                if 1 in codes.values() and fault.loses_a_pod:
                    found.append("1, the code of a program, for a lost pod")
                if 70 in {*codes.values(), *pods.values()} or b"a bug in a4-agent" in said:
                    found.append("a bug in the agent")
                cluster.close()
        except AssertionError as left:
            found.append(f"something of the cluster is left: {left}")
    return [f"{problem} (exit codes {pods}, {codes})" for problem in found]


def of_submitted(cluster: LocalCluster) -> dict[int, int]:
    """With which code the command that submits a run has ended; none where its pod was not started, or was killed."""
    content = cluster.read_bytes(0, [CODE])[CODE] or b""
    return dict(enumerate(map(int, content.split())))


def what_is_undone(cluster: LocalCluster, fault: Fault) -> str:
    """As the run itself has noted it, or nothing."""
    if fault.run != "connectivity":
        done = cluster.read_bytes(0, [f"/mnt/done-{pod}" for pod in range(PODS)])
        return ", ".join(f"there is no {path}" for path, content in done.items() if content is None)
    path = f"{RESULTS}/result.json"
    stored = cluster.read_bytes(0, [path])[path]
    if stored is None:
        return f"there is no {path}"
    result = json.loads(stored)
    finished = result["record"]["finished"]
    return "" if finished == list(range(PODS * GPUS)) else f"only the ranks {finished} finished"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=200, metavar="N", help="how many (default 200)")
    parser.add_argument("--seed", type=int, help="of all of them (default: random)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="of these, this one alone")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the output of pods goes (default: a new one)")
    options = parser.parse_args(argv)
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    keep = options.keep or Path(tempfile.mkdtemp(prefix="a4-soak-"))
    print(f"seed {seed}; output of failures in {keep}", flush=True)
    failed = 0
    for number in range(options.faults) if options.only is None else [options.only]:
        fault, log = draw(seed, number), keep / f"{seed}-{number}.log"
        wrong = problems(fault, log)
        print(f"{number}: {fault}: {'; '.join(wrong) or 'good'}", flush=True)
        if wrong:
            failed += 1
            print(f"   again: python -m tests.workbench.soak --seed {seed} --only {number}", flush=True)
        else:
            log.unlink()
    print(f"{failed} failed" if failed else "nothing failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
