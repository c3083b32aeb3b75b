"""Runs with lives on real pods: ranks that are killed, pods that are killed and replaced, and links that break."""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from agent.errors import AgentError
from agent.workbench.local.spec import NameFault
from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, Trial
from tests.cluster.work import agent, following, result, sleeping
from tests.workbench.local.helpers import eventually

PROGRAM = """\
touch /mnt/life-$A4_LIFE
until test -e /mnt/done; do echo "$A4_LIFE $(date +%s%N)" >> "/share/$(hostname)"; sleep 0.01; done
"""
"""Says over and over which life it is, beside the others."""
TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
PAGE_BYTES = 4096
"""The least that a pipe holds: less than a checkpoint."""
VICTIMS = [(0, "rank"), (1, "pod"), (1, "rank")]
"""Whom a training loses, one after the other."""


def begin(trial: Trial, *words: str) -> str:
    """Start a run in pod 0 and return its id."""
    done = trial.cluster.exec(0, ["a4-agent", *words], timeout=60)
    assert done.returncode == 0, f"{done.stderr}\n{trial.log()}"
    return done.stdout.strip()


def until_life(trial: Trial, life: int) -> None:
    for index in range(trial.cluster.spec.pods):
        trial.until(index, f"test -e /mnt/life-{life}")


def ended(trial: Trial, run: str) -> dict[str, object]:
    """result.json of the run, whose programs end now."""
    for index in range(trial.cluster.spec.pods):
        trial.cluster.write(index, "/mnt/done", "")
    return result_of_run(trial, run)


def result_of_run(trial: Trial, run: str) -> dict[str, object]:
    """result.json of the run, once it is over."""
    trial.until(0, f"test -e {RUN_DIR}/runs/{run}/result.json")
    result: dict[str, object] = json.loads(trial.cluster.read(0, f"{RUN_DIR}/runs/{run}/result.json"))
    return result


def lives_apart(files: Iterable[Path]) -> list[int]:
    """The lives that wrote something, none of them after a later one had begun to."""
    wrote: dict[int, list[int]] = {}
    for file in files:
        for line in file.read_text().splitlines():
            life, when = map(int, line.split())
            wrote.setdefault(life, []).append(when)
    lives = sorted(wrote)
    for before, after in pairwise(lives):
        assert max(wrote[before]) < min(wrote[after]), (before, after)
    return lives


@pytest.mark.parametrize("workload", ["mpirun", "script"])
def test_a_killed_rank_and_a_killed_pod(workload: str, start: Start, tmp_path: Path) -> None:
    """The others stay, and the name of the replacement is wrong for a while."""
    words = ["mpirun", "-N", "1", "--", "bash"] if workload == "mpirun" else ["run", "script", "--", "bash"]
    trial = sleeping(
        start,
        3,
        lives=3,
        replace_after=0.1,
        replaced_name=NameFault("stale", 1.0),
        files={"/job/program.sh": PROGRAM.encode()},
        directories={"/share": str(tmp_path)},
    )
    run = begin(trial, words[0], "--detach", *words[1:], "/job/program.sh")
    until_life(trial, 1)
    trial.cluster.exec(2, ["pkill", "-KILL", "-x", "-f", "bash /job/program.sh"])
    until_life(trial, 2)
    trial.cluster.kill_pod(1)
    until_life(trial, 3)
    result = ended(trial, run)
    assert [pod.replaced for pod in trial.cluster.pods()] == [0, 1, 0], trial.log()
    found = [(life["verdict"]["code"], life["lost"]) for life in result["lives"]]  # type: ignore[attr-defined]
    assert found == [(137, []), (75, [1])], trial.log()
    assert result["verdict"]["code"] == 0, trial.log()  # type: ignore[index]
    assert lives_apart(tmp_path.iterdir()) == [1, 2, 3]


@pytest.mark.faults
def test_pods_that_are_silent_for_a_while(start: Start, tmp_path: Path) -> None:
    """Their processes are gone before the next life begins, though nobody can tell them so; then they are let in again:
    one behind a link that is cut, and one whose agent is stopped while its processes could go on."""

    def begun(name: str) -> tuple[Trial, str]:
        (tmp_path / name).mkdir()
        files, share = {"/job/program.sh": PROGRAM.encode()}, {"/share": str(tmp_path / name)}
        trial = sleeping(start, 3, lives=3, files=files, directories=share)
        run = begin(trial, "run", "--detach", "script", "--", "bash", "/job/program.sh")
        until_life(trial, 1)
        return trial, run

    cut, stopped = begun("cut"), begun("stopped")
    pid = stopped[0].cluster.read(2, f"{RUN_DIR}/lock").split()[1]
    cut[0].cluster.link(2, up=False)
    stopped[0].cluster.exec(2, ["kill", "-STOP", pid])
    for trial, _ in (cut, stopped):
        trial.until(0, f"grep -qs '\"lost\"' {RUN_DIR}/state.json")
        trial.until(2, "! pgrep -x -f 'bash /job/program.sh'")
    cut[0].cluster.link(2, up=True)
    stopped[0].cluster.exec(2, ["kill", "-CONT", pid])
    for trial, run in (cut, stopped):
        until_life(trial, 2)
        result = ended(trial, run)
        assert [pod.replaced for pod in trial.cluster.pods()] == [0, 0, 0], trial.log()
        assert [life["lost"] for life in result["lives"]] == [[2]], trial.log()  # type: ignore[attr-defined]
    for name in ("cut", "stopped"):
        assert lives_apart((tmp_path / name).iterdir()) == [1, 2]


@contextmanager
def held(directory: Path, step: int) -> Iterator[int]:
    """The run stands still in the middle of this checkpoint, because it is written to a pipe."""
    os.mkfifo(path := directory / f"step-{step:09}.part")
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PAGE_BYTES)
        yield pipe
    finally:
        os.close(pipe)


def until_torn(directory: Path, step: int, pipe: int) -> None:
    """Wait for the run to be held there, and give what it has written the name of a whole checkpoint."""
    assert select.select([pipe], [], [], END_SECONDS)[0], f"step {step} did not come"
    part = directory / f"step-{step:09}.part"
    part.unlink()
    part.with_suffix(".pt").write_bytes(os.read(pipe, PAGE_BYTES))


def tensors(directory: Path, step: int) -> list[bytes]:
    """What a checkpoint has of the model and of the optimizer, to the last bit."""
    with zipfile.ZipFile(directory / f"step-{step:09}.pt") as file:
        return [file.read(name) for name in sorted(file.namelist()) if "/data/" in name]


@pytest.mark.parametrize("kills", [pytest.param(2, marks=pytest.mark.faults), pytest.param(10, marks=pytest.mark.long)])
def test_a_training_that_is_killed_ends_as_one_that_is_not(
    kills: int, start: Start, tmp_path: Path, torch: Path
) -> None:
    """To the last bit, though each time the newest checkpoint is torn."""
    kept, killed = tmp_path / "kept", tmp_path / "killed"
    killed.mkdir()
    trial = sleeping(
        start,
        2,
        lives=kills,
        replace_after=0.1,
        env={"A4_PYTHON": str(torch)},
        files={"/job/train.py": TRAIN.read_bytes()},
        directories={"/share": str(tmp_path)},
    )
    steps, victims = 20 * (kills + 1), [VICTIMS[at % len(VICTIMS)] for at in range(kills)]
    words = ("torchrun", "--", "/job/train.py", "--steps", str(steps), "--resume")
    undisturbed = agent(trial, 1, *words, "/share/kept")
    assert undisturbed.returncode == 0, undisturbed
    with ExitStack() as stack, following(trial, 0, *words, "/share/killed") as (run, run_id):
        pipes = [stack.enter_context(held(killed, step)) for step in range(20, steps, 20)]
        for life, (pod, what) in enumerate(victims, 1):
            until_torn(killed, 20 * life, pipes[life - 1])
            if what == "pod":
                trial.cluster.kill_pod(pod)
            else:
                trial.cluster.exec(pod, ["pkill", "-KILL", "-f", "--", "-u /job/train.py"])
        assert run.wait() == 0, f"{run.stderr.read().decode()}\n{trial.log()}"
        printed = run.stdout.read().decode().splitlines()
    torn = [line for line in printed if line.endswith(" is not whole")]
    assert [Path(line.split()[0]).stem for line in torn] == [f"step-{20 * life:09}" for life in range(1, kills + 1)]
    *losses, trained = undisturbed.stdout.splitlines()
    assert losses[-1].startswith(f"step {steps} of {steps}: loss ") and trained == "trained on 2 ranks", losses
    assert {line for line in printed if line.startswith(("step ", "trained "))} == {*losses, trained}
    assert tensors(killed, steps) == tensors(kept, steps) != []
    lives = result(trial, f"{RUN_DIR}/runs/{run_id}")["lives"]
    assert [life["lost"] for life in lives] == [[pod] if what == "pod" else [] for pod, what in victims], trial.log()
    assert trial.cluster.pods()[1].replaced == victims.count((1, "pod"))


SAYS = """\
touch /share/began-$A4_LIFE-$OMPI_COMM_WORLD_RANK
until test -e /share/done; do echo "$A4_LIFE $(date +%s%N)" >> /share/wrote-$OMPI_COMM_WORLD_RANK; sleep 0.01; done
"""
SIGNAL_AGENT = f"kill -{{}} $(cut -d' ' -f2 {RUN_DIR}/lock)"
LOSSES = {
    "rank": "pkill -KILL -f '^bash /job/program.sh'",
    "pod": "kill -KILL -1",
    "agent": SIGNAL_AGENT.format("KILL"),
    "told": SIGNAL_AGENT.format("TERM"),
}


def lose(trial: Trial, draw: random.Random) -> None:
    """One of the things that may happen to workers, or two of them at once."""
    for index in draw.sample([1, 2, 3], draw.choice([1, 1, 1, 2])):
        with suppress(AgentError):  # it is lost already
            trial.cluster.exec(index, ["bash", "-c", LOSSES[draw.choice(["rank", *LOSSES])]])


def let_write(file: Path, more: int) -> None:
    """Wait until a program has written so many bytes more."""
    size = file.stat().st_size + more
    eventually(lambda: file.stat().st_size >= size)


def begun_after(trial: Trial, share: Path, life: int) -> int:
    """The newest life after that one that has begun on every pod, once there is one."""

    def begun() -> int:
        pods = Counter(int(path.name.split("-")[1]) for path in share.glob("began-*"))
        return max((one for one, count in pods.items() if count == 4 and one > life), default=0)

    eventually(begun, f"no life after {life} has begun\n{trial.log()[-20000:]}")
    return begun()


def used_in_pod_0(trial: Trial) -> tuple[int, int]:
    """Descriptors of pod 0's agent, and guards there."""
    script = f"ls /proc/$(cut -d' ' -f2 {RUN_DIR}/lock)/fd | wc -l; pgrep -fc agent.machine.guard"
    files, guards = trial.cluster.exec(0, ["bash", "-c", script]).stdout.split()
    return int(files), int(guards)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_losses(seed: int, start: Start, tmp_path: Path) -> None:
    """Fifty for each seed, at any moment of a life, the beginning of the next one included."""
    draw, files, share = random.Random(seed), {"/job/program.sh": SAYS.encode()}, {"/share": str(tmp_path)}
    trial = sleeping(start, 4, lives=1000, replace_after=0, files=files, directories=share)
    run = begin(trial, "mpirun", "--detach", "-N", "1", "--", "bash", "/job/program.sh")
    life = begun_after(trial, tmp_path, 0)
    at_first = used_in_pod_0(trial)
    for _ in range(50):
        let_write(tmp_path / "wrote-0", draw.choice([0, 0, 100, 1000]))
        lose(trial, draw)
        life = begun_after(trial, tmp_path, life)
    at_last = used_in_pod_0(trial)
    (tmp_path / "done").touch()
    assert result_of_run(trial, run)["verdict"]["code"] == 0, trial.log()[-20000:]  # type: ignore[index]
    assert len(lives_apart(tmp_path.glob("wrote-*"))) > 50
    assert at_last[0] <= at_first[0] + 5 and at_last[1] == at_first[1] == 1, (at_first, at_last)
