"""find-slow's own processes over gloo: a child that stands still costs its pair one round, and no more."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.machine.sshd import free_port
from tests.programs.conftest import ROOT, Ranks
from tests.torch_environment import own_lines

PROGRAM = f"""
import importlib, os, signal, sys

sys.path.insert(0, {str(ROOT / "entrypoints")!r})
find_slow, measuring = (importlib.import_module(name) for name in ("find-slow", "find-slow-torch"))
pairs, exchange = measuring.Works.pairs, measuring.Works.exchange

def next_pair(self, told):
    self.rounds = getattr(self, "rounds", 0) + 1
    return pairs(self, told)

def exchanged(self, group):
    if self.rounds == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return exchange(self, group)

if os.environ["RANK"] == "2":
    measuring.Works.pairs, measuring.Works.exchange = next_pair, exchanged
# Another Python would import torch anew.
os.execvp = lambda python, argv: os._exit(measuring.main(argv[2:]))
sys.exit(find_slow.main(["--rank", os.environ["RANK"], *sys.argv[1:]]))
"""
ROUNDS = [[(0, 1), (2, 3)], [(0, 2), (1, 3)]]
NEXT = f"import json, sys; print(json.dumps({{}} if json.load(sys.stdin)['measured'] else {{'rounds': {ROUNDS}}}))"


def test_a_child_that_is_stopped(ranks: Ranks, tmp_path: Path) -> None:
    """Its parent kills it at its deadline; both of its pair take part in the next round, at the same ports."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    place = ("--nodes", "4", "--lead", "127.0.0.1", "--port", str(free_port()), "--token", "word", "--interface", "lo")
    following = json.dumps([sys.executable, "-c", NEXT])
    done = ranks(str(program), 4, *place, "--seconds", "0.1", "--over", "gloo", "--next", following)
    assert done.code == 0, done
    assert own_lines(done.out) == ["over gloo", "round 1: 2 pairs, 1 timed out", "round 2: 2 pairs"], done
    first, second = ({(a, b): speed for a, b, speed, _ in step["pairs"]} for step in done.steps("round"))
    assert first[0, 1] > first[2, 3] == 0 and all(second.values()), done
    assert done.step("end")["silent"] == []
