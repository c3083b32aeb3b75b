"""Runs with lives on real pods: ranks that are killed, pods that are killed and replaced, and links that break."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.workbench.local.spec import NameFault
from tests.cluster.conftest import RUN_DIR, Start, Trial
from tests.cluster.work import sleeping

PROGRAM = """\
echo "life $A4_LIFE on pod $JOB_COMPLETION_INDEX"
touch /mnt/life-$A4_LIFE
until test -e /mnt/done; do echo "$A4_LIFE $(date +%s%N)" >> /share/$JOB_COMPLETION_INDEX; sleep 0.01; done
"""
"""Says over and over which life it is, beside the others."""


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
    trial.until(0, f"test -e {RUN_DIR}/runs/{run}/result.json")
    result: dict[str, object] = json.loads(trial.cluster.read(0, f"{RUN_DIR}/runs/{run}/result.json"))
    return result


def lives_apart(share: Path) -> None:
    """No life wrote anything after a later one had begun to."""
    written = [tuple(map(int, line.split())) for file in share.iterdir() for line in file.read_text().splitlines()]
    lives = sorted({life for life, _ in written})
    assert lives == list(range(1, len(lives) + 1))
    for life in lives[1:]:
        begun = min(when for one, when in written if one == life)
        assert max(when for one, when in written if one < life) < begun


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
    lives_apart(tmp_path)


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
        lives_apart(tmp_path / name)
