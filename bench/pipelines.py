"""How long a second run of a finished pipeline takes, which does nothing and says why: python -m bench.pipelines

Two pods of a local cluster sleep beside a workspace, with the tests' stand-ins for the repository, the model and the
data. `a4-agent run pai-megatron-qwen3` is timed from its start in pod 0 to its end.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.cluster.conftest import RUN_DIR
from tests.cluster.work import agent, result_of
from tests.pai.workplace import Workplace

WORKLOAD = "pai-megatron-qwen3"
REPEATS = 5


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as path,
        Workplace(Path(path)) as place,
        place.cluster("none", gpus_per_pod=8, env={"SLEEP_INFINITY": "true"}) as trial,
    ):
        for index in (0, 1):
            trial.until(index, f'grep -qs \'"phase": "sleeping"\' {RUN_DIR}/state.json')
        for number in range(1 + REPEATS):
            began = time.monotonic()
            done = agent(trial, 0, "run", WORKLOAD)
            seconds = time.monotonic() - began
            assert done.returncode == 0, done.stderr
            found = result_of(trial, done)
            what = "again" if number else "first"
            print(f"{what}: {seconds:.2f} s, of these {found['until'] - found['since']:.2f} s in the pods")
        trial.cluster.terminate()
        trial.codes()


if __name__ == "__main__":
    main()
