"""How tests steer the stand-in: by files in `stand-in` of the workspace, which they write and read from outside."""

import os
import time
from pathlib import Path

DIRECTORY = Path(os.environ["PAI_WORKSPACE_ROOT"], "stand-in")
PATIENCE_SECONDS = 120.0


def has(habit: str) -> bool:
    """Whether it shall behave badly in this way."""
    return (DIRECTORY / "habits" / habit).exists()


def reach(point: str) -> None:
    """Say that it is there, and stay while the test holds it."""
    here = DIRECTORY / "reached" / f"{point}.{os.environ.get('GROUP_RANK', '0')}"
    here.parent.mkdir(parents=True, exist_ok=True)
    here.touch()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (DIRECTORY / "hold" / point).exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"held at {point} for too long")
        time.sleep(0.02)
    if has(f"dies at {point}"):
        raise SystemExit(f"the stand-in dies at {point}")
