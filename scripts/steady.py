"""Run the tests many times, each time in another order, and say what failed how often: `make test-steady`.

    .venv/bin/python scripts/steady.py [--runs N] [--seed SEED] [--hogs] [--keep DIR] [-- ARGUMENT_OF_PYTEST...]

Ends with 0 when all runs passed, 1 when one failed, 130 on Ctrl-C; the tables are printed in each case.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

PATIENCE_SECONDS = 60.0
"""For pytest to put its clusters away after Ctrl-C."""
HOG = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    sum(range(1_000_000))
"""
"""Keeps a core busy for as long as the process lives that started it."""


@dataclass(frozen=True)
class Plan:
    """What to do, as the command line says."""

    seeds: range
    hogs: int
    limit: float
    keep: Path
    arguments: tuple[str, ...]
    """For pytest."""


@dataclass(frozen=True)
class Run:
    """How one run ended."""

    seed: int
    seconds: float
    failed: frozenset[str]
    """Tests by their ids, or the one line on why there are no results."""

    @property
    def result(self) -> str:
        return f"{len(self.failed)} failed" if self.failed else "passed"


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = parse(sys.argv[1:])
    runs: list[Run] = []
    try:
        with hogs(plan.hogs):
            for seed in plan.seeds:
                runs.append(run_tests(plan, seed))
                print(progress(plan, runs), flush=True)
    except KeyboardInterrupt:
        print(f"\ninterrupted: {len(runs)} of {len(plan.seeds)} runs have ended")
        report(runs)
        return 130
    report(runs)
    return int(any(run.failed for run in runs))


def parse(argv: Sequence[str]) -> Plan:
    end = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], epilog="After --: what pytest gets.")
    parser.add_argument("--runs", type=int, default=5, help="how often (default 5)")
    parser.add_argument("--seed", type=int, help="of the first run; the next one has the next number (default: random)")
    parser.add_argument("--hogs", action="store_true", help="keep every core busy beside the tests")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which a run hangs (default 3600)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the output of failed runs goes")
    options = parser.parse_args(argv[:end])
    if options.runs < 1:
        parser.error("--runs is 1 or more")
    first = random.randrange(1, 1_000_000) if options.seed is None else options.seed
    return Plan(
        seeds=range(first, first + options.runs),
        hogs=len(os.sched_getaffinity(0)) if options.hogs else 0,
        limit=options.limit,
        keep=options.keep or Path(tempfile.gettempdir(), f"a4-steady-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"),
        arguments=tuple(argv[end + 1 :]),
    )


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Keep this many cores busy, until the block or this process ends."""
    argv = [sys.executable, "-IS", "-c", HOG, str(os.getpid())]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            started.append(subprocess.Popen(argv, start_new_session=True))  # Ctrl-C is for us
        yield
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


def run_tests(plan: Plan, seed: int) -> Run:
    """Run pytest once. Its output is kept if anything failed."""
    with tempfile.TemporaryDirectory(prefix="a4-steady-") as place:
        results, output = Path(place, "results.xml"), Path(place, "output")
        argv = [sys.executable, "-m", "pytest", "-o", "junit_family=xunit1", f"--junitxml={results}", *plan.arguments]
        began = time.monotonic()
        code = run_group(argv, {**os.environ, "A4_TEST_SEED": str(seed)}, output, plan.limit)
        run = Run(seed, time.monotonic() - began, failures(results, code))
        if run.failed:
            plan.keep.mkdir(parents=True, exist_ok=True)
            shutil.move(output, kept(plan, seed))
    return run


def run_group(argv: Sequence[str], env: dict[str, str], output: Path, limit: float) -> int | None:
    """The exit code of a command that runs in a process group of its own; None when the limit ended it."""
    with output.open("wb") as file:
        command = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        try:
            return command.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_group(command)


def end_group(command: subprocess.Popen[bytes]) -> None:
    """Send Ctrl-C, so that tests put their clusters away, then end by force what is left of the group."""
    try:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGINT)
            command.wait(PATIENCE_SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
        command.wait()


def failures(results: Path, code: int | None) -> frozenset[str]:
    """Ids of the tests that failed, or one line for a run that says of no test that it failed but ended badly."""
    if code is None:
        return frozenset({"(no results: it hung)"})
    try:
        cases = ElementTree.parse(results).iter("testcase")
    except (OSError, ElementTree.ParseError):
        return frozenset({f"(no results: exit code {code})"})
    failed = frozenset(test_id(case) for case in cases if {"failure", "error"} & {part.tag for part in case})
    return failed if failed or code == 0 else frozenset({f"(no failed test, yet exit code {code})"})


def test_id(case: ElementTree.Element) -> str:
    """As pytest takes it on its command line: `tests/test_x.py::TestThis::test_that[1]`; a file that cannot be read."""
    file, owner, name = (case.get(key, "") for key in ("file", "classname", "name"))
    if not owner:
        return file or name
    classes = owner.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
    return "::".join(part for part in (file, *classes.split("."), name) if part)


def kept(plan: Plan, seed: int) -> Path:
    return plan.keep / f"seed-{seed}.log"


def progress(plan: Plan, runs: Sequence[Run]) -> str:
    """The line on the run that has just ended."""
    run = runs[-1]
    line = f"run {len(runs)} of {len(plan.seeds)}: seed {run.seed}, {run.seconds:.1f} s, {run.result}"
    return f"{line}, output in {kept(plan, run.seed)}" if run.failed else line


def report(runs: Sequence[Run]) -> None:
    """Print how each run ended and what failed how often."""
    print(f"\n{'run':>5}  {'seed':>8}  {'seconds':>8}  result")
    for number, run in enumerate(runs, 1):
        print(f"{number:>5}  {run.seed:>8}  {run.seconds:>8.1f}  {run.result}")
    seeds = {test: [run.seed for run in runs if test in run.failed] for run in runs for test in run.failed}
    if not seeds:
        print("\nnothing failed")
        return
    print(f"\n{'failed':>10}  test")
    for test, found in sorted(seeds.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{f'{len(found)} of {len(runs)}':>10}  {test}, first with seed {found[0]}")


if __name__ == "__main__":
    sys.exit(main())
