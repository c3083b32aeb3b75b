"""What stages make of the answers of the programs that they run, and what they look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.decide.completeness import Checkpoint
from agent.decide.pipeline import Files, Model, Packages, Pipeline, Stage
from agent.errors import AgentError, DirectoryUnusable, MissingProgram, PeerLost, SettingsError, SystemFault
from agent.lifecycle.sharing.background import Held
from agent.lifecycle.stages import programs
from agent.lifecycle.stages.programs import Programs
from agent.lifecycle.stages.records import StageVerdict
from agent.lifecycle.stages.site import PodSite
from agent.lifecycle.stages.work import NETWORK_TRIES, Begin, Work
from agent.machine.stored import tree_bytes
from tests.lifecycle.test_stages import CLONE, TRAIN

STAGE = Stage("environment", "each pod", Packages("python3", {"numpy": "numpy<2"}))
LACKS = '{"numpy": "no numpy<2"}'


class Answering:
    """Stands in for Programs. What check-packages.py prints, and then pip's report."""

    def __init__(self, *texts: str, status: int = 0) -> None:
        self._texts = list(texts)
        self._status = status
        self.ran: list[Sequence[str]] = []

    def say(self, text: str) -> None:
        pass

    kill = staticmethod(lambda: None)
    bytes_in = staticmethod(tree_bytes)

    @contextmanager
    def looking_at(self, path: str) -> Iterator[None]:
        yield

    def run(
        self,
        stage: Stage,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        look: Callable[[str], None] = print,
        **how: Any,
    ) -> int:
        self.ran.append(argv)
        for line in self._texts.pop(0).splitlines():
            look(line)
        return self._status


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (["a greeting of sitecustomize\n{}"], SystemFault),
        ([""], SystemFault),
        ([LACKS, "no report"], SystemFault),
        ([LACKS, '{"install": [{"metadata": {"name": "nvidia_nccl_cu12"}}]}'], SettingsError),
    ],
)
def test_nothing_is_installed_before_it_is_known_what_comes(texts: list[str], error: type[AgentError]) -> None:
    programs: Any = Answering(*texts)
    with pytest.raises(error):
        Work(programs, "/nowhere", print).do(STAGE, Begin(True))
    assert len(programs.ran) == len(texts)


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        ('{"code": 66, "what": "x.bin: 404"}', MissingProgram, "x.bin: 404"),
        ('{"code": 75, "what": "reset"}', PeerLost, "reset"),
        (f'{{"total": {1 << 60}}}', DirectoryUnusable, "no space on "),
        ("", SystemFault, "ended with 1"),
    ],
)
def test_a_download_that_fails(tmp_path: Path, said: str, error: type[AgentError], why: str) -> None:
    programs: Any = Answering(said, status=1)
    with pytest.raises(error, match=why):
        Work(programs, "/nowhere", print).do(Stage("data", "lead", Files(["url"]), target=str(tmp_path)), Begin(True))


class BreakingOff(Answering):
    """The network fails again and again, and each download has brought one file more."""

    def __init__(self, place: Path, failures: int) -> None:
        super().__init__()
        self._place = place
        self._failures = failures

    def run(self, stage: Stage, argv: Sequence[str], *more: Any, **how: Any) -> int:
        self.ran.append(argv)
        if len(self.ran) > self._failures:
            return 0
        (self._place / f"part-{len(self.ran)}").write_text("x")
        more[2]('{"code": 75, "what": "the connection was reset"}')
        return 75


def test_a_model_is_asked_for_again_as_long_as_something_comes(tmp_path: Path) -> None:
    place = tmp_path / "model.partial"
    for name, directory in (("python", tmp_path / "huggingface/bin"), ("config.json", place)):
        directory.mkdir(parents=True)
        (directory / name).touch()
    programs: Any = BreakingOff(place, NETWORK_TRIES + 1)
    stage = Stage("model", "lead", Model("huggingface", "Qwen/x", ""), staging=str(place))
    Work(programs, str(tmp_path), print).do(stage, Begin(True))
    assert len(programs.ran) == NETWORK_TRIES + 2


def test_what_is_missing_is_installed_once() -> None:
    programs: Any = Answering(LACKS, '{"install": [{"metadata": {"name": "numpy"}}]}', "", "{}")
    Work(programs, "/nowhere", print).do(STAGE, Begin(True))
    assert [argv[-1] for argv in programs.ran[1:3]] == ["numpy<2"] * 2 and "--dry-run" not in programs.ran[2]


def test_who_waits_for_a_program_hears_how_far_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now, said, nothing = 0.0, list[str](), cast(Any, None)
    monkeypatch.setattr(programs, "time", SimpleNamespace(monotonic=lambda: now))
    running = Programs({}, "", nothing, said.append, lambda path: nullcontext())
    watch = programs._Watch("train", "", lambda: 0, running)
    assert watch.tick() == 60.0 and said == []
    now = 60.0
    watch.tick()
    assert said == ["train: still at it after 1 min 0 s"]
    watch.heard()
    now = 119.0
    watch.tick()
    assert len(said) == 1
    download = programs._Watch("data", str(tmp_path), lambda: 2 << 20, running)
    now += download.tick()
    (tmp_path / "part").write_bytes(bytes(1 << 20))
    download.tick()
    assert said[1:] == ["data: 1 MiB of 2 MiB (50 %), 102.4 KiB/s, 10 s left"]


# What a pod looks at on shared storage, which may hang


class Looked:
    """Stands in for Background, and for a claim that is held."""

    def __init__(self) -> None:
        self.at: list[str] = []

    @contextmanager
    def looking_at(self, path: str) -> Iterator[None]:
        self.at.append(path)
        yield

    def until(self) -> float:
        return time.monotonic() + 60


def found(tmp_path: Path) -> tuple[PodSite, Any, Stage]:
    """What one pod finds there; what it looked at; and a stage."""
    base = str(tmp_path)
    looked: Any = Looked()
    settings: Any = SimpleNamespace(shared_dir=base, epoch="uid.0.0")
    programs: Any = SimpleNamespace(say=lambda text: None)
    nobody: Any = None
    site = PodSite(Pipeline("run", 0, [0], []), settings, looked, nobody, programs, nobody, "")
    stage = CLONE._replace(target=f"{base}/clone", staging=f"{base}/clone.partial", space=1)
    return site, looked, stage


def test_nothing_is_looked_at_unseen(tmp_path: Path) -> None:
    """Who looks says so before: else a mount that hangs would be waited for without an end, or a word."""
    base = str(tmp_path)
    site, looked, stage = found(tmp_path)
    output = TRAIN.outputs[0]._replace(path=base)
    acts: dict[str, Callable[[], object]] = {
        "prepare": lambda: site.prepare(stage, StageVerdict(True, ""), looked),
        "problem": lambda: site.problem(output),
        "newest": lambda: site.newest(output),
        "names": lambda: site.names(base),
        "room": lambda: site.check_room([stage]),
        "begin": lambda: site.begin_from(TRAIN, Checkpoint(9, base)),
        "aside": lambda: site.set_aside(stage.target, looked),
        "clear": lambda: site.clear(stage, looked),
        "restore": lambda: site.restore(stage._replace(outputs=[output]), looked),
        "edits": lambda: site.edits(stage._replace(outputs=[output])),
    }
    for what, act in acts.items():
        looked.at.clear()
        act()
        assert looked.at and all(path.startswith(base) for path in looked.at), what


def test_who_has_lost_the_claim_takes_nothing_away(tmp_path: Path) -> None:
    """Another pod may have begun to make it there."""
    site, _, stage = found(tmp_path)

    def lost() -> float:
        raise PeerLost("another has taken it over")

    (tmp_path / "clone.partial").mkdir()
    with pytest.raises(PeerLost):
        site.prepare(stage, StageVerdict(True, ""), Held(lost))
    assert (tmp_path / "clone.partial").exists()


def test_too_little_room_for_all_of_it(tmp_path: Path) -> None:
    site, _, stage = found(tmp_path)
    with pytest.raises(DirectoryUnusable, match="no space on") as caught:
        site.check_room([stage._replace(space=1 << 60), TRAIN, TRAIN._replace(name="convert", space=1)])
    assert "needed by clone and convert" in caught.value.hint
