"""`FakeCluster`: pods with the agent's own lifecycle on machines that pretend, and what becomes of their runs."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from agent.decide.result import Result
from agent.decide.run_info import RunInfo
from agent.decide.run_names import run_of
from agent.decide.runspec import RunSpec
from agent.environment import load, secrets_of
from agent.errors import SystemFault, UsageError
from agent.lifecycle.pod.pod import Job, Pod
from agent.lifecycle.serve import make_role
from agent.log import Log
from agent.paths import RESULT, RunDir
from agent.settings import Found, read_settings
from agent.testing.loop import ENOUGH_SECONDS, JumpingLoop
from agent.testing.machine import FakeMachine, FakeProcess, Output, address_of
from agent.workloads import find_workload

SECRET = b"0123456789abcdef0123456789abcdef"
TOLD, LOST = 143, 205
"""Exit codes of a rank that mpirun ends, and of mpirun when it has lost a pod."""
PATIENCE = 60.0
"""Seconds for what takes milliseconds."""


class SubmittedRun(NamedTuple):
    """A run that a client has submitted."""

    spec: RunSpec
    """As it was submitted."""
    info: RunInfo
    """What `submit` has answered."""


class Outcome(NamedTuple):
    """What becomes of a run, or of one life of it; see FakeCluster.will_end."""

    code: int | Mapping[int, int] = 0
    output: str | Mapping[int, str] = ""
    errors: str | Mapping[int, str] = ""
    seconds: float | None = 1.0
    files: Mapping[str, str] = {}
    result: Mapping[str, Any] = {}
    lost: frozenset[int] = frozenset()


class FakeCluster:
    """A formed cluster that sleeps, as long as the `with` block lasts.

    Meanwhile A4_RUN_DIR leads `agent.Client()` to its pod 0. A run starts no program: it prints nothing and ends with
    exit code 0, unless `will_end` or `will_go_on` says otherwise. Nothing takes real time: two minutes of the cluster
    pass between two requests of a client, and all that a run takes when one waits for its end. `runs` has the runs that
    clients have submitted, the newest last.

    `env` has settings of the pods, as `a4-agent settings` lists them. Entering the block raises SettingsError for wrong
    ones, SystemFault where the cluster does not come to its sleep.
    """

    def __init__(self, pods: int = 2, gpus_per_pod: int = 8, *, env: Mapping[str, str] | None = None) -> None:
        self.runs: list[SubmittedRun] = []
        self._pods = pods
        self._gpus = gpus_per_pod
        self._env = env or {}
        self._outcomes: dict[str, list[Outcome]] = {}
        """What was said of the next runs, by what they are called."""
        self._lives: dict[str, Outcome] = {}
        """What becomes of each life of a run that has begun."""
        self._awaited: set[str] = set()
        """Runs for whose end a client waits, or has waited."""
        self._log = io.StringIO()

    def __enter__(self) -> FakeCluster:
        self._home = tempfile.mkdtemp(prefix="a4-")
        self._loop = JumpingLoop()
        self._thread = threading.Thread(target=self._live, name="agent.testing", daemon=True)
        self._machines: list[FakeMachine] = []
        try:
            self._form()
        except BaseException:
            self._end()
            raise
        self._before = os.environ.get("A4_RUN_DIR")
        os.environ["A4_RUN_DIR"] = self.run_dir
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.environ.pop("A4_RUN_DIR", None)
        if self._before is not None:
            os.environ["A4_RUN_DIR"] = self._before
        self._loop.post(self._loop.stop)
        self._thread.join()
        self._end()

    def _end(self) -> None:
        for machine in self._machines:
            machine.die()
        self._loop.close()
        shutil.rmtree(self._home)

    def _live(self) -> None:
        try:
            self._loop.run()
        finally:  # after a bug nobody waits for an answer
            for machine in self._machines:
                machine.die()

    def _form(self) -> None:
        environ = {
            "PATH": "/usr/sbin:/usr/bin",
            "NNODES": str(self._pods),
            "GPUS_PER_NODE": str(self._gpus),
            "HOSTNAME_PREFIX": "job-workload-",
            "DOMAIN_NAME": "job.default.svc.cluster.local",
            "JOB_IDENTIFIER": "job",
            "SLEEP_INFINITY": "true",
            "A4_EPOCH": "fake",
            "A4_RESULTS_DIR": f"{self._home}/results",
            "A4_GPU_PERSISTENCE": "false",
            "A4_REPORT": "false",
            "A4_RUN_HEALTH": "false",
            "A4_STALL_TIMEOUT_SECONDS": "0",
            **self._env,
        }
        net: dict[str, FakeMachine] = {}
        for index in range(self._pods):
            machine = net[address_of(index)] = self._pod(index, environ, net)
            self._machines.append(machine)
            machine.later(0.0, machine.role.start)
        self._loop.go_on()
        self._loop.later(0.01, lambda: self._stop_when_it_sleeps(ENOUGH_SECONDS))
        self._loop.run()

    def _pod(self, index: int, shared: Mapping[str, str], net: dict[str, FakeMachine]) -> FakeMachine:
        home = f"{self._home}/pod-{index}"
        environ = {**shared, "JOB_COMPLETION_INDEX": str(index), "A4_RUN_DIR": f"{home}/run"}
        environ |= {"POD_NAME": f"job-workload-0-{index}-fake", "NODE_NAME": f"node-{index}"}
        settings, warnings = read_settings(environ, Found(), "none")
        machine = FakeMachine(self._loop, home, address_of(index), self._gpus, net)
        machine.make_private_dir(settings.run_dir)
        machine.started = lambda process, output: self._started(index, process, output)
        machine.waited = self._waited
        machine.answered = self._answered
        machine.edited = self._edited
        log = Log(settings.log_level, settings.log_format, self._log, secrets_of(settings, environ, SECRET))
        log.labels = {"pod": f"{index}/{settings.nnodes}"}
        spec = RunSpec("none", by="ENTRYPOINT")
        job = Job(settings, environ, SECRET, "/usr/bin/python3", spec, started=machine.now(), warnings=warnings)
        machine.role = make_role(Pod(machine, log, job, lambda code: machine.die()))
        return machine

    def _stop_when_it_sleeps(self, seconds_left: float) -> None:
        pod = self._machines[0]
        if pod.alive and (load(RunDir(self.run_dir).state) or {}).get("phase") == "sleeping":
            self._loop.stop()
        elif pod.alive and seconds_left > 0:
            self._loop.later(0.01, lambda: self._stop_when_it_sleeps(seconds_left - 0.01))
        else:
            raise SystemFault(f"the cluster does not sleep:\n{self.log}")

    @property
    def run_dir(self) -> str:
        """The run directory of pod 0, for `agent.Client(run_dir)`."""
        return f"{self._home}/pod-0/run"

    @property
    def log(self) -> str:
        """What the agents of all pods have said so far."""
        return self._log.getvalue()

    # What becomes of runs

    def will_end(
        self,
        called: str = "",
        *,
        code: int | Mapping[int, int] = 0,
        output: str | Mapping[int, str] = "",
        errors: str | Mapping[int, str] = "",
        seconds: float = 1.0,
        files: Mapping[str, str] | None = None,
        result: Mapping[str, Any] | None = None,
        lost: Collection[int] = (),
    ) -> None:
        """Say how runs of that name or of that workload end; `called=""`: all of which nothing else is said.

        Said several times, it is for one run after the other, and the last for all that follow. A run that starts again
        (`lives`) takes the next each time. Raises UsageError for pods and fields that there are not.

        code: of the command on each pod, or by pod; of `mpirun` that of rank 0
        output: what it prints on stdout: on pod 0, or by pod; all that ranks of `mpirun` print, its pod 0 prints
        errors: what it prints on stderr
        seconds: how long it takes, on the clock of the cluster
        files: name → text of what is in its results directory at the end, such as `report.html`
        result: fields of its result.json, as docs/result.schema.json has them, in place of what the agent writes
        lost: pods that are gone after these seconds, so that the run ends with 75
        """
        self._check_pods({*lost, *(i for each in (code, output, errors) if isinstance(each, Mapping) for i in each)})
        if unknown := (result or {}).keys() - Result._fields:
            names = ", ".join(sorted(unknown))
            raise UsageError(f"result.json has no {names}", "docs/result.schema.json has all fields")
        self._say(called, Outcome(code, output, errors, seconds, files or {}, result or {}, frozenset(lost)))

    def will_go_on(self, called: str = "", *, output: str | Mapping[int, str] = "") -> None:
        """Say that such a run ends only when it is cancelled, or by a limit of its own; the rest as for `will_end`."""
        self._check_pods(output.keys() if isinstance(output, Mapping) else ())
        self._say(called, Outcome(output=output, seconds=None))

    def lose_pod(self, index: int) -> None:
        """The pod is gone, and the others have noticed that; pod 0: so is the agent that clients ask."""
        self._check_pods([index])
        still = threading.Event()

        def lose() -> None:
            self._machines[index].die()
            self._loop.go_on()
            self._loop.when_still(still.set)

        self._loop.post(lose)
        if not still.wait(PATIENCE):
            raise SystemFault(f"the cluster has stopped after a bug:\n{self.log}")

    def _check_pods(self, indices: Iterable[int]) -> None:
        if unknown := set(indices) - set(range(self._pods)):
            raise UsageError(f"pod {min(unknown)} is unknown", f"this cluster has pods 0-{self._pods - 1}")

    def _say(self, called: str, outcome: Outcome) -> None:
        self._outcomes[called] = [*self._outcomes.get(called, ()), outcome]

    # What the pods tell of them, in the loop

    def _answered(self, request: Any, answer: Any) -> None:
        if request.get("op") == "submit" and "ok" in answer:
            spec = RunSpec.from_json(request["spec"])
            self.runs.append(SubmittedRun(spec, RunInfo.from_json(answer["ok"])))

    def _waited(self, request: Any) -> float:
        """Who waits for the end of a run lets the time pass that it takes."""
        if request.get("op") != "wait":
            return 0.0
        waited = [run for run in self.runs if request.get("run") in (run.info.id, run.info.name)]
        self._awaited.update(run.info.id for run in waited)
        limits = sum((run.spec.timeout or 0.0) + (run.spec.stall or 0.0) for run in waited)
        return limits + sum(o.seconds or 0.0 for life, o in self._lives.items() if run_of(life) in self._awaited)

    def _run(self, life: str) -> SubmittedRun:
        return next(run for run in self.runs if run.info.id == run_of(life))

    def _outcome(self, life: str) -> Outcome:
        """What becomes of it, which is decided when its first process starts."""
        if life not in self._lives:
            spec = self._run(life).spec
            called = next((name for name in (spec.name, spec.workload) if name and name in self._outcomes), "")
            outcome, *later = self._outcomes.get(called) or [Outcome()]
            if later:
                self._outcomes[called] = later
            self._lives[life] = outcome
            if outcome.seconds is not None:
                self._loop.go_on(outcome.seconds if run_of(life) in self._awaited else 0.0)
                for index in outcome.lost:
                    self._loop.later(outcome.seconds, self._machines[index].die)
        return self._lives[life]

    def _started(self, index: int, process: FakeProcess, output: Output) -> None:
        run, outcome, machine = self._run(process.run), self._outcome(process.run), self._machines[index]
        workload = find_workload(run.spec.workload)
        code = outcome.code.get(index, 0) if isinstance(outcome.code, Mapping) else outcome.code
        ranks = self._ranks(run, process.run) if workload.led else {}
        for path, pod in ranks.items():
            pod.write(path, "started 1\n")

        def ended(status: int) -> None:
            for rank, (path, pod) in enumerate(ranks.items()):
                follows = status < 0 or outcome.lost or (rank and code)
                pod.write(path, f"started 1\nended {TOLD if follows else code} \n")
            for name, content in outcome.files.items():
                left = Path(self._home, "results/runs", run.info.id, name)
                left.parent.mkdir(parents=True, exist_ok=True)
                left.write_text(content)

        process.ending = ended
        for stream, said in ((1, outcome.output), (2, outcome.errors)):
            if text := said.get(index, "") if isinstance(said, Mapping) else said * (index == 0):
                machine.later(0.0, partial(output, stream, text.encode(errors="surrogateescape")))
        if outcome.seconds is not None and (workload.led or not workload.fail_fast or not outcome.lost):
            machine.later(outcome.seconds, lambda: process.end(LOST if workload.led and outcome.lost else code))

    def _ranks(self, run: SubmittedRun, life: str) -> dict[str, FakeMachine]:
        """The file in which rank.sh would record each rank, and its pod."""
        count, slots, places = run.spec.ranks or len(run.info.pods) * run.info.slots, run.info.slots, {}
        for rank in range(count):
            index = run.info.pods[rank // slots % len(run.info.pods)]
            places[f"{self._home}/pod-{index}/run/runs/{life}/ranks/{rank}"] = self._machines[index]
        return places

    def _edited(self, path: str, text: str) -> str:
        if path.rpartition("/")[2] != RESULT:
            return text
        data = json.loads(text)
        last = next((outcome for life, outcome in reversed(self._lives.items()) if run_of(life) == data["run"]), None)
        return json.dumps({**data, **last.result}) if last and last.result else text
