"""The process that carries out a pipeline, on real mounts: killed, stopped, told to end, and beside another one."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.decide.pipeline import Files, GitCheckout, Pipeline, Stage, StageCommand, StageOutput
from agent.launch import packed
from agent.lifecycle.sharing.claim_files import claim_directory, free_file
from tests.deadlines import SHORTEST_SECONDS
from tests.machine.test_downloading import Server as Server
from tests.machine.test_downloading import server as server
from tests.machine.waiting import wait_until
from tests.shared_mounts import LONG_LEASE, ROOT, SharedMounts

END_SECONDS = 120.0
AGAIN = "A4_TRAIN_AGAIN"
LEASE = str(SHORTEST_SECONDS)
"""Its end is waited for. A holder that a busy machine stops for less than two thirds of it keeps its claim."""
CONVERT = """
echo convert >> "$2"
test ! -e "$3" || until test -e "$3/go"; do sleep 0.05; done
mkdir "$1/release" && cd "$1" && echo release > latest_checkpointed_iteration.txt
for name in .metadata common.pt __0_0.distcp; do printf x. > release/$name; done
"""
TRAIN = """
echo "train from $1" >> "$3"
test -e "$4/fail" && exit 7
mkdir -p "$2/iter_0000009" && cd "$2/iter_0000009"
for name in common.pt __0_0.distcp .metadata; do printf x. > $name; done
echo " iteration  9/ 9 | elapsed time per iteration (ms): 1.0 | lm loss: 2.0"
"""


class Runner:
    """One of these processes. Its stderr is read line by line."""

    def __init__(self, mounts: SharedMounts, word: str, epoch: str, lease: str) -> None:
        self.notes = mounts.path / f"notes-{epoch}"
        self.notes.mkdir(exist_ok=True)
        self.record = self.notes / "record"
        notes = {"A4_RECORD": str(self.record), "A4_NOTES_DIR": str(self.notes)}
        env = {**mounts.environment(0, epoch, lease), **notes, "HOME": str(mounts.path)}
        del env["PYTHONPATH"]
        self.process = subprocess.Popen(
            mounts.enter("env", "-C", str(ROOT), sys.executable, "-Es", "-m", "agent.lifecycle.stages", word),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.said = b""

    def until(self, *texts: str) -> None:
        """Until it says one of these."""
        assert self.process.stderr is not None
        deadline = time.monotonic() + END_SECONDS
        while not any(text.encode() in self.said for text in texts):
            ready = select.select([self.process.stderr], [], [], max(0.0, deadline - time.monotonic()))[0]
            more = os.read(self.process.stderr.fileno(), 65536) if ready else b""
            assert more, self.said.decode()
            self.said += more

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """Its code, and all that it said."""
        _, rest = self.process.communicate(timeout=END_SECONDS)
        self.said += rest
        return self.process.returncode, self.said.decode()

    def told(self) -> dict[str, object]:
        """What it leaves for the agent when it has failed."""
        told: dict[str, object] = json.loads((self.notes / "end.json").read_text())
        return told


class Place:
    """A workspace, a repository with a submodule, and the stages of a small pipeline."""

    def __init__(self, path: Path, kind: str, repository: str, commit: str) -> None:
        self.mounts = SharedMounts(path, 1, kind)
        self.store = self.mounts.store
        self.repository, self.commit = repository, commit
        self.worked = path / "worked"
        self.worked.touch()
        self.gate = path / "gate"
        self._all: list[Runner] = []

    def close(self) -> None:
        for runner in self._all:
            if runner.process.poll() is None:
                for number in (signal.SIGCONT, signal.SIGKILL):
                    runner.signal(number)
            runner.process.communicate()
        self.mounts.__exit__(None, None, None)

    def stages(self, url: str = "", commit: str = "", only: Sequence[str] = ()) -> list[Stage]:
        base, commit = f"{self.mounts.path}/pod-0", commit or self.commit
        checkout, dist = StageOutput("checkout", f"{base}/Pai", commit), StageOutput("torch_dist", f"{base}/converted")
        trained, dataset = StageOutput("trained", f"{base}/logs/out", "9"), f"{base}/datasets"
        worked, inputs = ("WORKED", str(self.worked)), {"commit": commit}
        to = [("TO", f"{dist.path}.partial"), worked, ("GATE", str(self.gate))]
        convert = StageCommand(["sh", "-euc", CONVERT, "sh"], to, cwd=checkout.path)
        between = [("FROM", dist.path), ("TO", trained.path), worked, ("PLACE", str(self.mounts.path))]
        train = StageCommand(["sh", "-uc", TRAIN, "sh"], between, resumes="FROM")
        data = made("dataset", Files([url]), StageOutput("json", f"{dataset}/x.bin"), inputs={"url": url})
        stages = [
            made("clone", GitCheckout(self.repository, commit), checkout, inputs=inputs),
            *([data._replace(target=dataset, staging=f"{dataset}/.partial")] if url else []),
            made("convert", convert, dist, needs=[checkout], inputs=inputs),
            Stage("train", "together", train, [trained], trained.path, needs=[dist], inputs=inputs, again=AGAIN),
        ]
        return [stage for stage in stages if not only or stage.name in only]

    def start(self, stages: Sequence[Stage], epoch: str = "u.0.0", lease: str = LONG_LEASE) -> Runner:
        word = packed(Pipeline(f"run-{len(self._all)}", 0, [0], stages))
        self._all.append(Runner(self.mounts, word, epoch, lease))
        return self._all[-1]

    def run(self, stages: Sequence[Stage], epoch: str = "u.0.0", lease: str = LONG_LEASE) -> tuple[int, str]:
        return self.start(stages, epoch, lease).end()

    def lines(self) -> list[str]:
        """What commands of stages have done."""
        return self.worked.read_text().splitlines()


def made(name: str, work: GitCheckout | Files | StageCommand, output: StageOutput, **more: Any) -> Stage:
    return Stage(name, "lead", work, [output], output.path, f"{output.path}.partial", **more)


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One with a submodule, and its commit."""
    path = tmp_path_factory.mktemp("sources")

    def git(where: Path, *words: str) -> str:
        given = ["-c", "user.name=x", "-c", "user.email=x@y", "-c", "protocol.file.allow=always"]
        argv = ["git", "-C", str(where), *given, *words]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    for name in ("part", "repository"):
        (path / name).mkdir()
        git(path / name, "init", "--quiet")
        (path / name / "README").write_text(name)
        git(path / name, "add", "README")
        if name == "repository":
            git(path / name, "submodule", "--quiet", "add", f"file://{path}/part", "backends/part")
        git(path / name, "commit", "--quiet", "-m", "one")
    return f"file://{path}/repository", git(path / "repository", "rev-parse", "HEAD")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, repository: tuple[str, str]) -> Iterator[Place]:
    """Its parameter: the kind of mounts."""
    place = Place(tmp_path, getattr(request, "param", "bind"), *repository)
    yield place
    place.close()


def test_from_nothing_and_again_when_all_is_there(place: Place, server: Server) -> None:
    server.data = json.dumps([{"instruction": "x" * 100}] * 9000).encode()
    server.cut_after = 400_000
    stages = place.stages(server.url)
    first = place.start(stages)
    code, said = first.end()
    assert code == 0, said
    steps = [json.loads(line) for line in first.record.read_text().splitlines()]
    names = ("clone", "dataset", "convert", "train")
    assert [(step["step"], step["name"]) for step in steps] == [
        (word, name) for name in names for word in ("begin", "done")
    ]
    assert [(step["number"], step["of"]) for step in steps[::2]] == [(number, 4) for number in range(1, 5)]
    assert all((step["status"], step["passed_over"]) == (0, "") for step in steps[1::2])
    assert (place.store / "Pai/backends/part/README").read_text() == "part"
    assert (place.store / "datasets/x.bin").read_bytes() == server.data
    assert place.lines() == ["convert", f"train from {place.mounts.path}/pod-0/converted"]
    assert (first.notes / "iterations").read_text().split()[:3] == ["train", "iteration", "9/"]
    assert (place.store / "sync_flags_job/download_complete_flag").exists()
    assert not list(place.store.rglob("*.partial")) and not list(place.store.glob(".a4-agent/seen/*"))
    code, said = place.run(stages)
    assert code == 0 and place.lines()[2:] == []
    assert said.startswith("a4-agent: train: complete since") and AGAIN in said.splitlines()[0]
    assert [line.split(": ")[1] for line in said.splitlines()[1:]] == ["clone", "dataset", "convert", "train"]
    assert said.count("not needed: the training is complete") == 3


@pytest.mark.faults  # make test stops one in convert, and another takes over
@pytest.mark.parametrize("name", ["clone", "dataset", "train"])
def test_killed_in_a_stage_another_takes_over(place: Place, server: Server, name: str) -> None:
    server.data = json.dumps([{"instruction": "x" * 100}] * 9000).encode()
    place.gate.mkdir()
    stages = place.stages(server.url)
    first = place.start(stages, lease=LEASE)
    if name == "train":
        (place.gate / "go").touch()
    first.until(f"{name} begins")
    first.signal(signal.SIGKILL)
    (place.gate / "go").touch()
    code, said = place.run(stages, epoch="u.1.0", lease=LEASE)
    assert code == 0, said
    code, said = place.run(stages, epoch="u.1.0")
    assert code == 0 and "begins" not in said


def test_two_at_once_make_it_once(place: Place) -> None:
    place.gate.mkdir()
    first = place.start(place.stages())
    first.until("convert begins")
    second = place.start(place.stages(), epoch="v.0.0")
    second.until("waiting for the claim convert@converted: held by run-0")
    (place.gate / "go").touch()
    assert [first.end()[0], second.end()[0]] == [0, 0]
    assert place.lines().count("convert") == 1


def test_one_that_was_stopped_shows_nothing_when_it_goes_on(place: Place) -> None:
    """Another takes over at once, as if the claim had been given back: after a lease it does so in test_background."""
    place.gate.mkdir()
    stages = place.stages(only=["clone", "convert"])
    first = place.start(stages)
    wait_until(lambda: place.lines() == ["convert"])
    first.signal(signal.SIGSTOP)
    (place.gate / "go").touch()
    (place.store / claim_directory("convert@converted") / free_file(1)).touch()
    code, said = place.run(stages, epoch="v.0.0")
    assert code == 0, said
    code, said = place.run(stages, epoch="v.0.0")
    assert code == 0 and "begins" not in said
    made = (place.store / "converted").stat().st_ino
    first.signal(signal.SIGCONT)
    code, said = first.end()
    assert code == 75 and "another pod has taken over the claim convert@converted" in said, said
    assert (place.store / "converted").stat().st_ino == made and first.told()["origin"] == "agent"


def test_told_to_end_at_a_claim_and_in_a_program(place: Place) -> None:
    place.gate.mkdir()
    first = place.start(place.stages())
    first.until("convert begins")
    second = place.start(place.stages(), epoch="v.0.0")
    second.until("waiting for the claim")
    for told in (second, first):
        told.signal(signal.SIGTERM)
        code, said = told.end()
        assert code == 143, said
    assert not (place.store / "converted").exists()


# What goes wrong


def test_a_commit_or_repository_that_is_not_there(place: Place) -> None:
    nowhere = ("file:///nowhere", "", "'/nowhere' does not appear to be a git repository")
    for url, commit, why in ((place.repository, "b" * 40, "b" * 40), nowhere):
        place.repository = url
        runner = place.start(place.stages(commit=commit, only=["clone"]))
        code, said = runner.end()
        assert code == 66 and why in said, said
        assert not (place.store / "Pai").exists()
        told = runner.told()
        assert (told["stage"], told["origin"]) == ("clone", "agent") and why in str(told["what"])


def test_a_checkout_is_restored_or_kept_under_another_name(place: Place) -> None:
    clone = place.stages(only=["clone"])
    assert place.run(clone)[0] == 0
    checkout = place.store / "Pai"
    text, edited = (checkout / "README").read_text(), (checkout / ".gitmodules").read_text() + "# mine\n"
    (checkout / ".gitmodules").write_text(edited)
    for damaged in (lambda readme: readme.write_text(""), Path.unlink):
        damaged(checkout / "README")
        (checkout / "new").write_text("mine")
        (checkout / "backends/part/README").write_text("pa")
        runner = place.start(clone)
        code, said = runner.end()
        assert code == 0 and "clone: restored (missing or cut off): README and backends/part/README; " in said
        assert said.endswith("; edited, left as is: .gitmodules\n")
        done = json.loads(runner.record.read_text().splitlines()[-1])
        assert done["passed_over"].endswith("; edited, left as is: .gitmodules")
        assert (checkout / "README").read_text() == text and (checkout / ".gitmodules").read_text() == edited
        assert (checkout / "backends/part/README").read_text() == "part"
    assert not list(place.store.glob("Pai.*"))
    git = ["git", "-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(checkout)]
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "mine"], check=True)
    code, said = place.run(clone)
    assert code == 0 and "is at commit" in said and "moved to" in said
    torn = {"modules/backends/part/HEAD": "git submodule: fatal: not a git repository", "index": "it has no .git/index"}
    for lost, why in torn.items():
        (aside,) = place.store.glob("Pai.before-*")
        aside.rename(place.store / f"seen-{lost[:5]}")  # its name has seconds alone
        (checkout / ".git" / lost).unlink()
        code, said = place.run(clone)
        assert code == 0 and why in said and "moved to" in said
        assert (checkout / "backends/part/README").exists()


def test_no_room_for_what_it_notes(place: Place) -> None:
    notes = place.mounts.path / "notes-u.0.0"
    notes.mkdir()
    for name in ("record", "end.json"):
        (notes / name).symlink_to("/dev/full")
    code, said = place.run(place.stages(only=["clone"]))
    assert code == 71 and f"{notes}/record cannot be written: No space left on device" in said, said


def test_a_training_that_fails_goes_on_and_fails_for_good(place: Place) -> None:
    fails = place.mounts.path / "fail"
    fails.touch()
    runner = place.start(place.stages())
    assert runner.end()[0] == 7 and runner.told()["origin"] == "workload"
    code, said = place.run(place.stages(), epoch="u.1.0")
    assert code == 65 and "the attempt or life before it has saved no newer checkpoint" in said
    saved = place.store / "logs/out/iter_0000004"
    saved.mkdir(parents=True)
    for name in ("common.pt", "__0_0.distcp", ".metadata"):
        (saved / name).write_text("x.")
    (place.store / "converted/config.json").write_text("{}")
    code, said = place.run(place.stages(), epoch="u.2.0")
    assert code == 7 and "iter_0000004; the optimizer starts afresh" in said
    fails.unlink()
    code, said = place.run(place.stages(), epoch="u.3.0")
    assert code == 0, said
    begun = place.lines()[-1].removeprefix("train from ").replace(f"{place.mounts.path}/pod-0", str(place.store))
    assert sorted(os.listdir(begun)) == ["config.json", "iter_0000004", "latest_checkpointed_iteration.txt"]
    assert os.readlink(f"{begun}/iter_0000004").endswith("logs/out/iter_0000004")


@pytest.mark.parametrize("place", ["fuse"], indirect=True)
def test_storage_that_hangs_ends_it(place: Place) -> None:
    """The lease is short: where a busy machine lets it pass before the storage hangs, it ends in the same way."""
    place.gate.mkdir()
    first = place.start(place.stages(), lease="6")
    first.until("convert begins", "could not be renewed")
    place.mounts.servers[0].send_signal(signal.SIGSTOP)
    first.until("could not be renewed", "the storage hangs")
    place.mounts.servers[0].kill()  # what waits for it inside the kernel cannot be ended before
    code, said = first.end()
    assert code in (73, 75), said
    assert not (place.store / "converted").exists()
