"""What a run of `ddp`, `collectives` and `connectivity` is refused for is what their programs do not take: no more, no
less."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Mapping

import pytest

from agent.errors import UsageError
from agent.workloads import find_workload
from tests.programs.conftest import ROOT
from tests.test_workloads import context
from tests.torch_environment import TORCH_PYTHON

BOTH = {
    "": "",
    "--backend gloo --timeout-seconds 30": "",
    "--back gloo": "",
    "--backend mpi": "invalid choice: 'mpi'",
    "--timeout-seconds 0": "'0' is not a whole number (at least 1)",
    "--stepps 3x": "unrecognized arguments: --stepps",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "ddp": {
        **BOTH,
        "--steps 3 --batch=4 --width 16 --layers 2 --timed 1": "",
        "--width 15": "'15' is not a whole number (at least 16)",
        "--steps": "expected one argument",
        "--steps -1": "'-1' is not a whole number (at least 1)",
        "all_reduce": "unrecognized arguments: all_reduce",
    },
    "collectives": {
        **BOTH,
        "all_reduce --tests broadcast,sendrecv -b 1.5m -e 8G -f 2 -n 3 -w 0 -c 0": "",
        "-i 1K -d bfloat16 -o avg -r 1 --budget-seconds 0.5": "",
        "--tests all_reduce,reduce": "no test reduce: there are all_reduce, all_gather",
        "-b 1M -e 1K": "minbytes 1048576 is more than maxbytes 1024",
        "-b 0": "'0' is not a size",
        "-e 1P": "'1P' is not a size",
        "-r 6": "no rank 6 for --root: there are 6 ranks",
        "-d uint32": "invalid choice: 'uint32'",
        "-f 2 -i 1K": "not allowed with",
        "-f 1": "whole number (at least 2)",
        "-n 0": "whole number (at least 1)",
        "--budget": "expected one argument",
        "--budget-seconds x": "invalid float value: 'x'",
    },
    "connectivity": {
        "": "",
        "--sizes 8,1048576 --rep 3": "",
        "--sizes 8,0": "--sizes",
        "--sizes 1M": "--sizes",
        "--repeats 0": "--repeats",
        "--repeats": "expected one argument",
        "--bogus 3": "unrecognized arguments: --bogus",
    },
}
IN_TORCH = """
import contextlib, importlib, io, json, os, shlex, sys
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="6", LOCAL_WORLD_SIZE="2", COLUMNS="80")
os.environ.update(A4_TOKEN_FILE="t", A4_RECORD="r", A4_MPI_VERSION="4.1.4", OMPI_COMM_WORLD_RANK="0")

def ending(program, words):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            importlib.import_module("torch_ranks").LINGER_SECONDS = 0
            importlib.import_module(program).arguments(shlex.split(words))
        except SystemExit as end:
            return out.getvalue() + err.getvalue() or "?"
    return ""

given = json.loads(sys.argv[1])
print(json.dumps({program: [ending(program, words) for words in all] for program, all in given.items()}))
"""


@pytest.fixture(scope="module")
def programs() -> dict[str, dict[str, str]]:
    """What each program says of words and of --help; empty: it takes them."""
    given = {program: [*words, "--help"] for program, words in WORDS.items()}
    done = subprocess.run(
        [str(TORCH_PYTHON), "-c", IN_TORCH, json.dumps(given)],
        env={"PYTHONPATH": str(ROOT / "entrypoints"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {program: dict(zip(given[program], found[program], strict=True)) for program in given}


@pytest.mark.parametrize(("program", "words"), [(program, words) for program in WORDS for words in WORDS[program]])
def test_both_take_and_refuse_the_same(program: str, words: str, programs: dict[str, dict[str, str]]) -> None:
    said = ""
    try:
        find_workload(program).check(context(program, *shlex.split(words)))
    except UsageError as error:
        said = error.what
    wanted = WORDS[program][words]
    assert bool(said) == bool(programs[program][words]) == bool(wanted)
    assert wanted in said and wanted in programs[program][words]


@pytest.mark.parametrize("program", WORDS)
def test_both_have_the_same_options(program: str, programs: dict[str, dict[str, str]]) -> None:
    own = {name for option in find_workload(program).options for name in option.names}
    assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", programs[program]["--help"].split("options:")[1])) >= own
    assert set(re.findall(r"^  (--?[a-z][\w-]*)", programs[program]["--help"], re.MULTILINE)) - {"-h"} <= own
