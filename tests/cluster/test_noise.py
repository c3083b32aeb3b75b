"""How many lines a person sees on stderr of a run under torchrun, however it ends; the logs have the others."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cluster.conftest import Start
from tests.cluster.work import agent, following, read_until, sleeping

NOISY = Path(__file__).with_name("programs") / "noisy.py"


def test_lines_on_stderr(start: Start, torch: Path) -> None:
    files = {"/job/noisy.py": NOISY.read_bytes()}
    trial = sleeping(start, 3, gpus_per_pod=2, env={"A4_PYTHON": str(torch)}, files=files)

    def typed(*words: str) -> tuple[int, list[str]]:
        done = agent(trial, 1, "torchrun", *words, cwd="/job")
        return done.returncode, done.stderr.splitlines()

    code, shown = typed("--", "noisy.py", "succeeds")
    assert (code, len(shown)) == (0, 2), shown

    code, shown = typed("--", "absent.py")
    assert (code, len(shown)) == (66, 3), shown
    assert "/job/absent.py cannot be started: No such file or directory (pods 0-2)" in shown[1]
    trial.cluster.exec(1, ["touch", "/job/absent.py"])
    code, shown = typed("--", "absent.py")
    assert (code, len(shown)) == (66, 3), shown
    assert shown[1].endswith(" (pods 0,2)")
    code, shown = typed("--", "--no-python", "./absent.sh")
    assert (code, "./absent.sh cannot be started" in shown[1]) == (66, True), shown

    code, shown = typed("--", "noisy.py", "raises")
    assert (code, len(shown) <= 25) == (1, True), shown
    assert " ended with exit code 1: rank 3 failed: ValueError: the loss is nan (pod " in shown[1]
    assert '    [rank3]:     raise ValueError("the loss is nan")' in shown
    assert shown[-2] == "  5 ranks on 3 pods ended because of it: a4-agent logs RUN --rank N"
    assert " more lines of errors)" in shown[-1]
    logged = agent(trial, 0, "logs", "--rank", "2").stderr
    assert "[rank2]: RuntimeError" in logged and "Root Cause (first observed failure)" in logged

    code, shown = typed("--stall-timeout", "30", "--", "noisy.py", "hangs")
    assert (code, len(shown) <= 25) == (124, True), shown
    assert "rank 3 (pod " in shown[2]

    with following(trial, 1, "torchrun", "--", "/job/noisy.py", "stays") as (run, _):
        for _ in range(6):
            read_until(run.stdout, b"here\n")
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        shown = run.stderr.read().decode().splitlines()
    assert len(shown) <= 4, shown
