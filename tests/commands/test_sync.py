"""`a4-agent sync` in pods with mounts of their own: on real file systems, with all that is wrong with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.decide.sync.facts import Fact, FactPlace, write_fact
from tests.shared_mounts import PATIENCE_SECONDS, SharedMounts, command, ended, until

SHORT_LEASE = "8"
"""For tests in which a lease is to end: where a busy machine ends it before, the same is expected."""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedMounts]:
    """Three pods."""
    with SharedMounts(tmp_path, 3) as mounts:
        yield mounts


def until_it_waits(waiting: subprocess.Popen[str]) -> None:
    """Until the command has heard pod 0 and says that it waits."""
    assert waiting.stderr is not None
    line = waiting.stderr.readline()
    assert line.startswith("a4-agent: waiting for pod"), line


# What it does


def test_a_run_on_some_pods_waits_for_these_alone(shared: SharedMounts) -> None:
    """Its first pod, here pod 2, leads and is waited for by default."""
    env = {"A4_RUN": "script-1a2b", "A4_RUN_PODS": "2,1", "A4_JOB_NNODES": "3", "NNODES": "2"}
    waiting = [shared.start(1, "wait", "ready", *words, env=env) for words in ((), ("--from", "all"))]
    assert shared.sync(1, "wait", "ready", "--from", "0", env=env)[0] == 2
    assert [shared.sync(pod, "set", "ready", env=env)[0] for pod in (2, 1)] == [0, 0]
    assert [ended(one)[0] for one in waiting] == [0, 0]


def test_a_failure_ends_the_wait_with_its_code(shared: SharedMounts) -> None:
    shared.sync(0, "set", "download")
    waiting = shared.start(1, "wait", "download", "--from", "1")
    until_it_waits(waiting)
    words = ("fail", "download", "--code", "7", "--message", "no space on\ndevice for hf_123456789")
    assert shared.sync(0, *words, env={"HF_TOKEN": "hf_123456789"})[0] == 0
    assert ended(waiting)[0] == 7
    code, out, err = shared.sync(2, "wait", "download")
    assert (code, out) == (7, "")
    assert "a4-agent: pod 0 says that download failed: no space on\ndevice for ***" in err


def test_what_counts_is_listed_and_taken_away(shared: SharedMounts) -> None:
    assert shared.sync(0, "list") == (
        0,
        "",
        "a4-agent: pod 0 is not heard: nothing counts (it is heard from its first a4-agent sync on)\n",
    )
    shared.sync(0, "set", "download")
    shared.sync(1, "fail", "convert", "--code", "3", "--message", "it broke")
    code, out, _ = shared.sync(2, "list")
    header, *lines = out.splitlines()
    assert (code, header.split()) == (0, ["name", "pod", "state", "since", "message"])
    assert [line.split()[:4] for line in lines] == [
        ["convert", "1", "failed", "(3)"],
        ["download", "0", "done", lines[1].split()[3]],
    ]
    listed = json.loads(shared.sync(0, "list", "--json")[1])
    assert [(fact["name"], fact["pod"], fact["failed"], fact["code"]) for fact in listed["facts"]] == [
        ("convert", 1, True, 3),
        ("download", 0, False, 0),
    ]
    assert listed["directory"] == ".a4-agent/jobs/e"
    assert shared.sync(2, "clean", "convert")[::2] == (0, "a4-agent: 1 file of convert taken away\n")
    assert sorted(os.listdir(shared.facts())) == ["done.download.0"]


def test_flags_for_old_scripts_are_written_and_never_read(shared: SharedMounts) -> None:
    flag = shared.inside(shared.store) / "sync_flags_job" / "download_complete_flag"
    flag.parent.mkdir()
    flag.touch()
    waiting = shared.start(1, "wait", "download_complete")
    shared.sync(0, "set", "something")  # the first of this start of pod 0
    assert not flag.exists()
    assert waiting.poll() is None
    shared.sync(0, "set", "download_complete")
    assert flag.is_file()
    assert ended(waiting)[0] == 0
    shared.sync(1, "fail", "download_complete")
    assert not flag.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "a/b"), "is not a name of at most 100 letters"),
        (("wait", "x", "--from", "3"), "names pods that do not take part"),
        (("wait", "x", "--from", "2-1"), "names pods that do not take part"),
        (("wait", "x", "--timeout", "0"), "is not a number of seconds"),
        (("fail", "x", "--code", "0"), "is not a whole number from 1 to 255"),
        (("list", "--dir", "mnt"), "is not an absolute path"),
        (("fail", "x", "--while", "4194304"), "there is no such process"),
    ],
)
def test_wrong_command_lines(shared: SharedMounts, words: tuple[str, ...], said: str) -> None:
    code, out, err = shared.sync(0, *words)
    assert (code, out) == (2, "")
    assert said in err


# What counts and where


def test_another_directory_has_beats_of_its_own(shared: SharedMounts) -> None:
    other = shared.path / "other"
    (shared.path / "elsewhere").mkdir()
    other.mkdir()
    shared.mount("--bind", str(shared.path / "elsewhere"), str(other))
    shared.sync(0, "set", "x")
    assert shared.sync(0, "set", "y", "--dir", str(other))[0] == 0
    assert shared.sync(1, "wait", "y", "--dir", str(other))[0] == 0
    assert shared.sync(1, "wait", "x")[0] == 0


def test_pod_0_stopped_longer_than_its_lease_writes_nothing_when_it_wakes_up(shared: SharedMounts) -> None:
    shared.sync(0, "set", "y", lease=SHORT_LEASE)
    waiting = shared.start(1, "wait", "x", lease=SHORT_LEASE)
    until_it_waits(waiting)
    beats = shared.beats_of(0)
    os.kill(beats, signal.SIGSTOP)
    assert ended(waiting)[0] == 75
    before = names_in(shared)
    os.kill(beats, signal.SIGCONT)
    until(lambda: not any(command(beats)))
    code, _, err = shared.sync(0, "set", "x", lease=SHORT_LEASE)
    assert code == 75
    assert f"longer than the lease of {SHORT_LEASE} s: other pods may have given it up" in err
    assert names_in(shared) == before
    assert shared.sync(0, "set", "x", lease=SHORT_LEASE)[0] == 0  # of a new start
    assert len([path for path in shared.job().iterdir() if path.is_dir()]) == 2


def names_in(shared: SharedMounts) -> set[str]:
    """All that is there, less the numbers of beats."""
    found = (str(path.relative_to(shared.job())) for path in shared.job().rglob("*"))
    return {name.rpartition(".")[0] if name.startswith("pod.") else name for name in found}


# What is wrong with a fact


def test_a_damaged_fact_is_an_error_until_it_is_taken_away_or_set_anew(shared: SharedMounts) -> None:
    for name in ("torn", "a_directory"):
        assert shared.sync(0, "set", name)[0] == 0
    torn, directory = (shared.facts() / f"done.{name}.0" for name in ("torn", "a_directory"))
    torn.write_bytes(torn.read_bytes()[:-5])
    directory.unlink()
    directory.mkdir()
    for path in (torn, directory):
        code, _, err = shared.sync(1, "wait", path.name.split(".")[1])
        assert (code, f"{path.name} is not a fact: " in err) == (73, True), err
    assert shared.sync(1, "clean", "a_directory")[0] == 0 and not directory.exists()
    assert shared.sync(0, "set", "torn")[0] == 0
    assert shared.sync(2, "wait", "torn")[0] == 0


# What is wrong with a directory


def refused(
    shared: SharedMounts,
    why: str,
    *,
    index: int = 0,
    directory: Path | None = None,
    verbs: Sequence[str] = ("set",),
) -> None:
    env = {"A4_SHARED_DIR": str(directory)} if directory else {}
    for verb in verbs:
        code, out, err = shared.sync(index, verb, "x", env=env)
        assert (code, out) == (73, ""), err
        assert why in err, err


@pytest.mark.parametrize(("directory", "why"), [("/no/such", "No such file"), ("/etc/hostname", "Not a directory")])
def test_no_directory(shared: SharedMounts, directory: str, why: str) -> None:
    refused(shared, f"A4_SHARED_DIR={directory} cannot be used: {why}", directory=Path(directory))


def test_a_directory_that_nothing_is_mounted_at(shared: SharedMounts, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    if os.stat("/").st_dev != os.stat(tmp_path).st_dev:
        pytest.skip("this machine's temporary files are on a mount")
    refused(shared, "nothing is mounted at", directory=plain)
    assert list(plain.iterdir()) == []


def test_no_setting(shared: SharedMounts) -> None:
    code, _, err = shared.sync(0, "list", env={"A4_SHARED_DIR": ""})
    assert (code, "A4_SHARED_DIR is not set" in err) == (78, True)
    env = {"PAI_WORKSPACE_ROOT": str(shared.path / "pod-1")}
    code, _, err = ended(shared.start(0, "list", "--dir", env["PAI_WORKSPACE_ROOT"]))
    assert (code, "pod 0 is not heard" in err) == (0, True)


def test_a_directory_that_cannot_be_written(shared: SharedMounts) -> None:
    shared.mount("-o", "remount,bind,ro", str(shared.path / "pod-0"))
    refused(shared, "Read-only file system", verbs=("set", "wait", "clean"))


def test_a_full_disk(tmp_path: Path) -> None:
    with SharedMounts(tmp_path, 1, "size=64k") as shared:
        assert shared.sync(0, "set", "x")[0] == 0
        with (
            pytest.raises(OSError, match="No space left"),
            (shared.inside(shared.store) / "ballast").open("wb", 0) as file,
        ):
            while True:
                file.write(b"x" * 4096)
        refused(shared, "No space left on device")


def test_a_bucket(tmp_path: Path) -> None:
    with SharedMounts(tmp_path, 1, "fuse") as shared:
        bucket = tmp_path / "bucket"
        bucket.mkdir()
        named = ["bindfs", "-f", "-o", "subtype=gcsfuse", str(shared.store), str(bucket)]
        shared.serve(named, bucket)
        refused(shared, "is a bucket (gcsfuse at", directory=bucket)


def test_a_directory_that_hangs_holds_nobody(tmp_path: Path) -> None:
    with SharedMounts(tmp_path, 2, "fuse") as shared:
        shared.sync(0, "set", "y")
        waiting = shared.start(1, "wait", "x")
        until_it_waits(waiting)
        shared.servers[1].send_signal(signal.SIGSTOP)
        waiting.terminate()
        assert waiting.wait(PATIENCE_SECONDS) == -signal.SIGTERM
        refused(shared, "no answer for 5 s", index=1)
        shared.servers[1].send_signal(signal.SIGCONT)


@pytest.mark.faults
def test_a_directory_that_hangs_during_a_wait_ends_it(tmp_path: Path) -> None:
    with SharedMounts(tmp_path, 2, "fuse") as shared:
        shared.sync(0, "set", "y")
        waiting = shared.start(1, "wait", "x")
        until_it_waits(waiting)
        shared.servers[1].send_signal(signal.SIGSTOP)
        code, _, err = ended(waiting)
        assert (code, "cannot be used any more: no answer for 10 s" in err) == (73, True)
        shared.servers[1].send_signal(signal.SIGCONT)


# Caches


def run_through_caches(shared: SharedMounts, epoch: str, draw: int) -> None:
    """One wait, among what an earlier start has left, through caches that hold what was and what was not there."""
    old = f"{draw:032x}"
    folder = shared.job(epoch) / old
    folder.mkdir(parents=True)
    (shared.job(epoch) / f"pod.0.{old}.{draw}").touch()
    for pod in range(shared.pods):
        fact = Fact("x", pod)
        text = write_fact(fact, FactPlace(f".a4-agent/jobs/{epoch}", old))
        (folder / fact.file).write_text(text[: len(text) - draw % 2])
    for index in range(shared.pods):
        # What a script would do: look for names that are not there yet, and at what is.
        looked = shared.inside(shared.path / f"pod-{index}") / ".a4-agent" / "jobs" / epoch
        assert os.path.exists(looked / old / "done.x.0") and not os.path.exists(looked / "new" / "done.x.0")
    waiting = [shared.start(index, "wait", "x", epoch=epoch) for index in range(1, shared.pods)]
    assert shared.sync(0, "set", "y", epoch=epoch)[0] == 0
    assert [one.poll() for one in waiting] == [None] * len(waiting), "a false pass"
    assert shared.sync(0, "set", "x", epoch=epoch)[0] == 0
    assert [ended(one)[0] for one in waiting] == [0] * len(waiting)


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.faults) for first in range(2, 50, 8))])
def test_no_false_pass_through_caches(tmp_path: Path, first: int) -> None:
    with SharedMounts(tmp_path, 3, "fuse") as shared:
        for number in range(first, first + 8) if first else (0, 1):
            run_through_caches(shared, f"e{number % 2}", number)  # each of the two job names again and again
            shared.restart()
