"""What stages make of the answers of the programs that they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.decide.pipeline import Model, Packages, Stage
from agent.errors import AgentError, SettingsError, SystemFault
from agent.lifecycle.stages import programs
from agent.lifecycle.stages.programs import Programs
from agent.lifecycle.stages.work import NETWORK_TRIES, Begin, Work
from agent.machine.stored import tree_bytes

STAGE = Stage("environment", "each pod", Packages("python3", {"numpy": "numpy<2"}))
LACKS = '{"numpy": "no numpy<2"}'


class Answering:
    """Stands in for Programs. What check-packages.py prints, and then pip's report."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.ran: list[Sequence[str]] = []

    def say(self, text: str) -> None:
        pass

    def run(
        self,
        stage: Stage,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        look: Callable[[str], None] = print,
        *,
        quiet: bool = False,
    ) -> int:
        self.ran.append(argv)
        for line in self._texts.pop(0).splitlines():
            look(line)
        return 0


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


class BreakingOff(Answering):
    """The network fails again and again, and each download has brought one file more."""

    def __init__(self, place: Path, failures: int) -> None:
        super().__init__()
        self._place = place
        self._failures = failures

    def bytes_in(self, path: str) -> int:
        return tree_bytes(path)

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


def test_a_program_that_prints_nothing_is_said_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said, nothing = 0.0, list[str](), cast(Any, None)
    monkeypatch.setattr(programs, "time", SimpleNamespace(monotonic=lambda: now))
    watch = programs._Watch("train", "", lambda: 0, Programs({}, "", nothing, said.append, nothing))
    assert watch.tick() == 60.0 and said == []
    now = 60.0
    watch.tick()
    assert said == ["train: still at it after 1 min 0 s"]
    watch.heard()
    now = 119.0
    watch.tick()
    assert len(said) == 1
