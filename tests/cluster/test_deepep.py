"""`deepep` over pods, with a stand-in for DeepEP's tests that needs no GPU (programs/deepep.py)."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.conftest import Start, all_codes
from tests.cluster.work import agent, order, result, result_of, sleeping
from tests.golden.golden import expect_result

STAND_IN = Path(__file__).with_name("programs") / "deepep.py"
DEEPEP = "/opt/deepep/DeepEP"
PRELOAD = "libm.so.6"
"""Wherever it is: any library that can be loaded."""
FILES = {f"{DEEPEP}/tests/{name}": STAND_IN.read_bytes() for name in ("legacy/test_internode.py", "elastic/test_ep.py")}
NVIDIA_SMI = """#!/bin/sh
[ "$1" = -L ] && for i in 0 1 2 3 4 5 6 7; do echo "GPU $i: NVIDIA B200 (UUID: GPU-$i)"; done
"""
NO_PROFILE = {"A4_PROFILE": "none"}


def test_as_the_old_chart_asks_for_it(start: Start) -> None:
    env = {**NO_PROFILE, "RUN_DEEPEP_TEST": "true", "A4_SSH_PORT": "222", "LD_PRELOAD": PRELOAD}
    trial = start(
        2, gpus_per_pod=8, arguments=(), env=env, files={**FILES, "/usr/local/bin/nvidia-smi": NVIDIA_SMI.encode()}
    )
    all_codes(trial, 0)
    found = result(trial)
    assert found["workload"] == "deepep" and found["verdict"]["status"] == "passed", found["verdict"]
    assert found["verdict"]["what"] == "DeepEP is good: 32 of 32 cases passed on each of 2 nodes"
    figures = [32, 70.5, 231.0, 81.25, 265.0, 75.0, 245.0]
    assert found["tables"][0]["rows"] == [[index, *figures] for index in order(trial)]
    assert found["record"]["nodes"]["0"]["gpus"] == "8 × NVIDIA B200"
    assert found["gate"]["status"] == "passed" and found["gate"]["reference"]["rdma"]["combine"] == 75.0
    expect_result("deepep", found)
    said = "".join(out.data.decode() for out in trial.cluster.output(0) if out.stream == "out")
    arguments = f"arguments [], preloaded {PRELOAD}, in {DEEPEP}"
    assert said.count(arguments) == 2 and said.count("[testing] Running with") == 64, said
    assert "LD_PRELOAD" not in found["launch"]["environment"]
    assert found["launch"]["environment"]["A4_DEEPEP_PRELOAD"] == PRELOAD


def test_the_elastic_test(start: Start) -> None:
    asked = ("deepep", "--", "--test", "elastic")
    trial = start(2, gpus_per_pod=8, arguments=asked, env=NO_PROFILE, files=FILES)
    all_codes(trial, 0)
    found = result(trial)
    what = "DeepEP is good: 144 of 144 cases passed on each of 2 nodes"
    assert (found["verdict"]["what"], found["gate"]["status"]) == (what, "not judged"), found
    figures = [144, 89.0, 296.0, 89.0, 296.0, 87.0, 290.0]
    assert found["tables"][0]["rows"] == [[index, *figures] for index in order(trial)]


def test_what_goes_wrong_on_a_node(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=8, env=NO_PROFILE, files=FILES)
    other = order(trial)[1]

    trial.cluster.write(other, "/tmp/deepep", "wrong")
    wrong = agent(trial, 0, "run", "deepep")
    verdict = result_of(trial, wrong)["verdict"]
    assert (wrong.returncode, verdict["origin"]) == (65, "workload"), wrong
    assert verdict["where"].startswith(f"pod {other},") and "a check failed in case 19 (" in verdict["what"]
    assert f"pod {other}: AssertionError: 511 != 512" in verdict["why"]
    assert "AssertionError: 511 != 512" in wrong.stderr

    trial.cluster.exec(other, ["rm", "-r", f"{DEEPEP}/tests"])
    absent = agent(trial, 0, "run", "deepep")
    verdict = result_of(trial, absent)["verdict"]
    assert (absent.returncode, verdict["origin"]) == (66, "agent"), absent
    assert verdict["where"].startswith(f"pod {other},") and "tests/legacy/test_internode.py" in verdict["what"]
    trial.cluster.terminate()
    all_codes(trial, 143)
