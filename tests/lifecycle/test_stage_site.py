"""What a pod looks at on shared storage, which may hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.decide.completeness import Checkpoint
from agent.decide.pipeline import Pipeline, Stage
from agent.decide.stages import StageVerdict
from agent.errors import DirectoryUnusable, PeerLost
from agent.lifecycle.sharing.background import Held
from agent.lifecycle.stages.site import PodSite
from tests.lifecycle.test_stages import CLONE, TRAIN


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


@pytest.mark.parametrize(
    "what", ["prepare", "problem", "newest", "names", "room", "begin", "aside", "clear", "restore", "edits"]
)
def test_nothing_is_looked_at_unseen(tmp_path: Path, what: str) -> None:
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
    acts[what]()
    assert looked.at and all(path.startswith(base) for path in looked.at)


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
