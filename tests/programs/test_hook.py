"""entrypoints/hook in real ranks: a socket that torch's own server answers on, and a program that notices nothing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.paths import shipped
from tests.torch_environment import TORCH_PYTHON, is_served, own_lines

HOOK = os.path.dirname(shipped("entrypoints", "hook/sitecustomize.py"))
DEADLINE_SECONDS = 120

SEEN = """
import json, os, sys
print(json.dumps({
    "path": sys.path,
    "environ": {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "A4_WHY_DIR")},
    "site": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "meta": [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path],
}), flush=True)
"""
SERVED = """
import os, socket, subprocess, sys
import torch

def ask(path):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(60)
        peer.connect(path)
        peer.sendall(b"POST /handler/ping HTTP/1.0\\r\\nContent-Length: 0\\r\\n\\r\\n")
        return peer.recv(4096).split(b"\\r\\n")[0].decode()

path = f"{sys.argv[1]}/{os.getpid()}.sock"
if os.path.exists(path):
    print(ask(path), oct(os.stat(path).st_mode & 0o777), flush=True)
child = os.fork()
if not child:
    sys.exit(3)  # as a program ends: with all its destructors
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
subprocess.run([sys.executable, "-c", "import torch, os; print(os.environ.get('PYTHONPATH'))"], check=True)
print(len(os.listdir(sys.argv[1])), flush=True)
"""
RANK = {"OMPI_COMM_WORLD_RANK": "0"}


def run(
    code: str, directory: Path, *options: str, env: Mapping[str, str], python: str = sys.executable, hook: bool = True
) -> subprocess.CompletedProcess[str]:
    """`hook=False`: as it would be without."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": HOOK, **env}
    if hook:
        environ["A4_WHY_DIR"] = str(directory)
    else:
        environ["PYTHONPATH"] = environ["PYTHONPATH"].replace(HOOK, "").strip(":")
    environ = {name: value for name, value in environ.items() if value}
    argv = [python, *options, "-c", code, str(directory)]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


def test_a_rank_is_served_and_says_nothing_of_it(tmp_path: Path) -> None:
    """A socket that an earlier process of its PID has left is in nobody's way. With an old torch there is none."""
    (left := socket.socket(socket.AF_UNIX)).bind(f"{tmp_path}/stale.sock")
    left.close()
    rename = f"import os; os.rename('{tmp_path}/stale.sock', f'{tmp_path}/{{os.getpid()}}.sock')\n"
    program = rename + SERVED if is_served() else SERVED
    done = run(program, tmp_path, python=str(TORCH_PYTHON), env=RANK)
    expected = ["HTTP/1.1 200 OK 0o600", "3", "None", "3"] if is_served() else ["3", "None", "3"]
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


def test_the_ranks_of_torchrun_are_served_and_torchrun_is_not(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, torch\nprint(os.path.exists(f'{sys.argv[1]}/{os.getpid()}.sock'), flush=True)\n"
    )
    (sockets := tmp_path / "s").mkdir()
    argv = [str(TORCH_PYTHON), "-m", "torch.distributed.run", "--nproc-per-node", "2", "--log-dir", f"{tmp_path}/logs"]
    environ = {"PATH": os.environ["PATH"], "A4_WHY_DIR": str(sockets), "PYTHONPATH": HOOK, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*argv, str(program), str(sockets)], env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    expected = (["True", "True"], 5) if is_served() else (["False", "False"], 3)
    assert (done.returncode, (done.stdout.split(), len(os.listdir(sockets)))) == (0, expected), done
    assert {noted.read_text() for noted in sockets.iterdir() if noted.suffix == ""} == {"0\n", "1\n"}


UNTIL_NOTED = """
while not os.path.exists(f"{sys.argv[1]}/first-collective"):
    dist.barrier()
"""
NOBODY_LOOKS = """
import threading
assert threading.active_count() == 1, threading.enumerate()
"""
COLLECTIVE = """
import os, sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{{sys.argv[1]}}/meeting", rank=0, world_size=1)
before = time.time()
dist.all_reduce(torch.ones(4))
{}
print(before, time.time(), torch.__version__)
"""


def test_what_ranks_leave_for_the_result(tmp_path: Path) -> None:
    """torch 2.4 does not tell when a collective is done, and no thread waits for that."""
    env = {**RANK, "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    program = COLLECTIVE.format(UNTIL_NOTED if is_served() else NOBODY_LOOKS)
    done = run(program, tmp_path, python=str(TORCH_PYTHON), env=env)
    before, after, torch = " ".join(own_lines(done.stdout)).split()
    if is_served():
        assert float(before) <= float((tmp_path / "first-collective").read_text()) <= float(after)
    found = json.loads((tmp_path / "versions.json").read_text())
    assert found["torch"] == torch and found["python"].startswith("3.")
    assert ("cuda" in found) == ("nccl" in found) == ("+cu" in torch)


GROUPS = """
import json, os, sys, torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meeting", rank=0, world_size=1)
dist.new_group([0], group_desc="mine")
path = f"{sys.argv[1]}/{os.getpid()}.groups"
print(open(path).read())
child = os.fork()
if not child:
    dist.new_group([0])
    os._exit(0)
os.waitpid(child, 0)
print(len(json.load(open(path))), flush=True)
os._exit(0)
"""


def test_the_groups_of_a_rank_are_in_a_file(tmp_path: Path) -> None:
    """Those of the rank. What it has forked adds none."""
    done = run(GROUPS, tmp_path, python=str(TORCH_PYTHON), env=RANK)
    groups, count = own_lines(done.stdout)
    assert (list(json.loads(groups).values()), count) == ([[0], [0]], "2"), done


def test_finders_of_another_age_are_in_nobodys_way(tmp_path: Path) -> None:
    """As that of six before 1.16; and one that raises is told of as without the hook. There is no torch."""
    for code in ("class Old: pass", "class Old:\n def find_spec(*_): raise RuntimeError('no')"):
        code += "\nimport sys; sys.meta_path.append(Old())\ntry: import torch\nexcept Exception as e: print(repr(e))"
        found, expected = (run(code, tmp_path, env=RANK, hook=hook) for hook in (True, False))
        assert (found.stdout, found.stderr, found.returncode) == (expected.stdout, expected.stderr, 0)
        assert found.stdout


def test_a_rank_without_torch_leaves_the_version_of_python(tmp_path: Path) -> None:
    run("print('ran')", tmp_path, env=RANK)
    assert json.loads((tmp_path / "versions.json").read_text()) == {"python": platform.python_version()}


@pytest.mark.parametrize(
    "sitecustomize",
    [
        None,
        "",
        "raise ImportError('no', name='sitecustomize')",
        "raise OSError('broken')",
        "import no_such_module",
        "import sys; sys.meta_path.clear(); sys.path.clear()",
        "import sys, os; del sys.modules['sitecustomize']; os.environ['PYTHONPATH'] = 'mine'",
        "import sys; sys.modules.pop('os')",
        "raise SystemExit(7)",
        "import os; os._exit(8)",
    ],
)
def test_a_rank_is_as_it_would_be_without(tmp_path: Path, sitecustomize: str | None) -> None:
    user = tmp_path / "user"
    user.mkdir()
    if sitecustomize is not None:
        (user / "sitecustomize.py").write_text(sitecustomize)
    env = {**RANK, "PYTHONPATH": f"{HOOK}:{user}:/no/such/"}
    found, expected = (run(SEEN, tmp_path, env=env, hook=hook) for hook in (True, False))
    assert (found.returncode, found.stderr.splitlines()[-1:]) == (
        expected.returncode,
        expected.stderr.splitlines()[-1:],
    )
    if expected.stdout:
        seen, wanted = json.loads(found.stdout), json.loads(expected.stdout)
        seen["meta"] = [name for name in seen["meta"] if name != "AfterTorch"]
        assert seen == wanted
    else:
        assert not found.stdout


def old_python(version: str) -> str:
    """An interpreter on PATH or from pyenv; empty where there is neither."""
    found = [shutil.which(f"python{version}"), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    works = [one for one in found if one and not subprocess.run([one, "-c", ""], capture_output=True).returncode]
    return works[0] if works else ""


@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_a_python_that_is_too_old_for_the_hook_is_as_it_would_be_without(version: str, tmp_path: Path) -> None:
    python = old_python(version)
    if not python:
        pytest.skip(f"this machine has no Python {version}")
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.stdout.write('the user\\'s own\\n')")
    code = "import os, sys; print((sys.path, sorted(os.environ.items()), sorted(sys.modules), sys.meta_path))"
    for path in (f"{HOOK}:{tmp_path}", HOOK):
        env = {**RANK, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}  # 2.7 would write beside the hook
        found, expected = (run(code, tmp_path, env=env, python=python, hook=hook) for hook in (True, False))
        assert (found.returncode, found.stderr, found.stdout) == (0, "", expected.stdout)
        assert ("the user's own" in found.stdout) == (path != HOOK)


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_rank_that_reads_no_pythonpath_has_no_socket(tmp_path: Path, option: str) -> None:
    done = run("print('ran')", tmp_path, option, env=RANK)
    assert (done.stdout, done.stderr, os.listdir(tmp_path)) == ("ran\n", "", [])


@pytest.mark.parametrize(
    "torch",
    [
        "__version__ = '1.13.1'",
        "__version__ = 'of a vendor'",
        "raise ImportError('libcudart.so.12: cannot open shared object file')",
        "{}['no']",
    ],
)
def test_an_old_or_broken_torch_is_imported_as_ever(tmp_path: Path, torch: str) -> None:
    (packages := tmp_path / "packages").mkdir()
    (packages / "torch.py").write_text(torch)
    code = "import torch, sys, os; print(torch.__version__, type(torch.__loader__).__name__, vars(torch.__loader__))"
    env = {**RANK, "PYTHONPATH": f"{HOOK}:{packages}"}
    found, expected = (run(code, tmp_path, env=env, hook=hook) for hook in (True, False))
    assert (found.returncode, found.stdout, found.stderr) == (expected.returncode, expected.stdout, expected.stderr)


NEW_NAMES = ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")
OLD_NAMES = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
AS_TORCH_READS = f"""
import ctypes, json, os, sys, torch
(getenv := ctypes.CDLL(None).getenv).restype = ctypes.c_char_p
names = {NEW_NAMES + OLD_NAMES}
read = {{name: value.decode() for name in names if (value := getenv(name.encode()))}}
print(json.dumps([read, [name for name in names if name in os.environ], repr(sys.meta_path)]))
"""


@pytest.mark.parametrize(("version", "names"), [("2.7.1+cu128", OLD_NAMES), ("2.8.0", NEW_NAMES)])
@pytest.mark.parametrize("before", ["", "import importlib.util as asked; asked.find_spec('torch')"])
def test_the_recorder_is_set_for_torch_where_no_program_sees_it(
    tmp_path: Path, version: str, names: tuple[str, str], before: str
) -> None:
    """Also where a library has looked first whether there is a torch."""
    (tmp_path / "torch.py").write_text(f"__version__ = '{version}'")
    env = {**RANK, "PYTHONPATH": f"{HOOK}:{tmp_path}"}
    read, shown, finders = json.loads(run(before + AS_TORCH_READS, tmp_path, env=env).stdout)
    assert (read, shown) == (dict(zip(names, ("2000", f"{tmp_path}/dump-"), strict=True)), [])
    assert "AfterTorch" not in finders
    users = {NEW_NAMES[0]: "7", OLD_NAMES[1]: "/users"}
    read, _, _ = json.loads(run(before + AS_TORCH_READS, tmp_path, env={**env, **users}).stdout)
    assert read == users


def test_what_is_no_rank_hands_the_directory_on(tmp_path: Path) -> None:
    done = run(SEEN, tmp_path, env={"PYTHONPATH": f"{HOOK}:/users"})
    seen = json.loads(done.stdout)
    assert seen["environ"] == {"PYTHONPATH": f"{HOOK}:/users", "A4_WHY_DIR": str(tmp_path)}
    assert HOOK not in seen["path"] and "/users" in seen["path"]
