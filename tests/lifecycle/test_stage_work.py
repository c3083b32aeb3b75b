"""What stages make of the answers of the programs that they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from agent.decide.pipeline import Packages, Stage
from agent.errors import AgentError, SettingsError, SystemFault
from agent.lifecycle.stages.sequence import Begin
from agent.lifecycle.stages.work import Work

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


def test_what_is_missing_is_installed_once() -> None:
    programs: Any = Answering(LACKS, '{"install": [{"metadata": {"name": "numpy"}}]}', "", "{}")
    Work(programs, "/nowhere", print).do(STAGE, Begin(True))
    assert [argv[-1] for argv in programs.ran[1:3]] == ["numpy<2"] * 2 and "--dry-run" not in programs.ran[2]
