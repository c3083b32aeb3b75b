"""entrypoints/deepep-node.sh: which test it takes, and of what it warns before. In pods: tests/cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "entrypoints" / "deepep-node.sh"
IN_TESTS, LEGACY, ELASTIC = "tests/test_internode.py", "tests/legacy/test_internode.py", "tests/elastic/test_ep.py"
TEST = "import sys; print(sys.argv[0]); sys.exit(3)"
LAYOUT, LEGACY_LAYOUT = "csrc/kernels/ibgda_device.cuh", "csrc/kernels/legacy/ibgda_device.cuh"
OLD = "queue.rcs[pe * num_rc_per_pe + id];\n"
BOTH = OLD + "queue.rcs[pe + npes * id];\n"
"""How the queue pair of a peer is found."""


def run(root: Path, files: dict[str, str], test: str = "", nvshmem: str = "") -> tuple[int, list[str], str]:
    """Exit status, lines of `about`, stderr."""
    if nvshmem:
        files = {**files, f"nvidia_nvshmem_cu13-{nvshmem}.dist-info/METADATA": f"Version: {nvshmem}\n"}
    for name, text in files.items():
        (root / "deepep" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "deepep" / name).write_text(text)
    (root / "notes").mkdir()
    given = {"A4_NOTES_DIR": "notes", "A4_DEEPEP_DIR": "deepep", "A4_WORKLOAD_PYTHON": sys.executable}
    given = {name: str(root / value) for name, value in given.items()} | {"OMPI_COMM_WORLD_RANK": "0"}
    done = subprocess.run(
        ["sh", str(SCRIPT)],
        env={"PATH": os.environ["PATH"], **given, "A4_DEEPEP_TEST": test},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, (root / "notes" / "about").read_text().splitlines(), done.stderr


@pytest.mark.parametrize(
    ("there", "wanted", "taken"),
    [
        ([IN_TESTS], "", IN_TESTS),
        ([LEGACY, ELASTIC], "", LEGACY),
        ([LEGACY, ELASTIC], "elastic", ELASTIC),
        ([ELASTIC], "", ELASTIC),
        (["tests/v3/test_ep.py"], "elastic", "tests/v3/test_ep.py"),
        ([IN_TESTS], "elastic", ""),
    ],
)
def test_which_test_is_taken(there: list[str], wanted: str, taken: str, tmp_path: Path) -> None:
    code, about, _ = run(tmp_path, dict.fromkeys(there, TEST), wanted)
    if taken:
        kind = "elastic" if taken.endswith("test_ep.py") else "internode"
        assert (code, about[:2]) == (3, [f"test {kind}", f"script {tmp_path}/deepep/{taken}"])
        assert about[-1] == "status 3" and (tmp_path / "notes/output").read_text() == f"{taken}\n"
    else:
        assert code == 66 and about[0].startswith("missing ") and "(A4_DEEPEP_DIR) has none of tests/" in about[0]


@pytest.mark.parametrize(
    ("files", "nvshmem", "warned"),
    [
        ({LAYOUT: OLD}, "3.5.19", True),
        ({LAYOUT: OLD}, "3.4.5", False),
        ({LAYOUT: BOTH}, "3.5.19", False),
        ({LEGACY_LAYOUT: OLD, ELASTIC: TEST}, "3.10.0", True),
        ({}, "3.5.19", False),
    ],
)
def test_the_pair_that_hangs_is_named_before(files: dict[str, str], nvshmem: str, warned: bool, tmp_path: Path) -> None:
    _, about, errors = run(tmp_path, {IN_TESTS: TEST, **files}, nvshmem=nvshmem)
    told = [line.removeprefix("warning ") for line in about if line.startswith("warning ") and line != "warning "]
    assert len(told) == warned and f"nvshmem {nvshmem}" in about
    if warned:
        assert f"NVSHMEM is {nvshmem}, and" in told[0] and "pull request 564" in told[0]
        assert errors.startswith(f"deepep: {told[0]}\n")
        assert ("or use --test elastic" in told[0]) == (ELASTIC in files)
