"""What is known of an nccl run that is over, and how it ended: the verdict, the text for people and result.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.mpirun_end import reported_end
from agent.decide.ranks import FOLLOWED, as_json
from agent.decide.words import at_most, count_text
from agent.errors import AgentError, Exit
from agent.fabrics import FABRICS
from agent.paths import shipped
from agent.workloads.base import Judgement, Measurements, Outcome, RunContext
from agent.workloads.connectivity import LOG as CONNECTIVITY_LOG
from agent.workloads.connectivity import Connectivity
from agent.workloads.ends import broken_off
from agent.workloads.mpi import end_of_ranks, recorded_ends, usable_mpi
from agent.workloads.nccl import baselines, measured
from agent.workloads.nccl.baselines import KnownBaseline, SpeedGate
from agent.workloads.nccl.notes import CONNECTIVITY, Noted
from agent.workloads.nccl.options import parse_options
from agent.workloads.nccl.steps import PROGRAMS, known_baselines, places, processes, step_names
from agent.workloads.nccl_logs import uneven
from agent.workloads.network import WRONG, NcclNetwork, unknown_on
from agent.workloads.step_record import StepEnd, read_steps

LOG = "nccl-test-results.txt"


class Ended:
    """Raises AgentError where nothing can have been started."""

    def __init__(self, context: RunContext, outcome: Outcome) -> None:
        self.context = context
        self.options = parse_options(context.args, context.profile)
        self.mpi, self.layout = usable_mpi(context), processes(context, self.options)
        self.steps = {step.name: step for step in read_steps(outcome.record)}
        self.last = next(reversed(self.steps), "")
        # Where no rank of the last step started, the records are still those of a step before.
        self.outcome = replace(outcome, ranks={i: end for i, end in outcome.ranks.items() if end.step == self.last})
        self.outputs = measured.split_output(outcome.output)
        noted = {index: wire.from_json(Noted, found) for index, found in outcome.notes.items()}
        self.noted = noted.get(context.lead, Noted())
        self.network = NcclNetwork.of(noted, (step for step, _ in step_names(self.options)))
        self.ranks = self.layout.ranks * self.options.width
        self.measurements = [
            measured.measurement(
                step,
                test,
                self.outputs.get(step, ""),
                self.noted.sweeps.get(step, ()),
                self.ranks,
                self.options.width,
            )
            for step, test in step_names(self.options)
            if step in self.steps
        ]
        self.tests = self._comparable([one for one in self.measurements if not one.without_mpi])
        self.wrong_networks = self.network.wrong(context.profile)
        done = [one.step for one in self.measurements if one.complete]
        judged = [i for i in context.indices if i not in outcome.lost] if context.profile in FABRICS else ()
        self.unknown = unknown_on(self.network.silent(done, judged))
        self.gate = self._gate()

    def _comparable(self, measurements: Sequence[measured.Measurement]) -> list[baselines.Runs]:
        pods = len(self.context.plan.peers)
        return measured.comparable(measurements, self.context.profile, pods, self.ranks // pods)

    def _gate(self) -> SpeedGate:
        """Judge the speed, or say why it cannot be judged: over another network it says nothing."""
        why_not = ""
        entries: list[KnownBaseline] = []
        try:
            entries = known_baselines(self.context)
        except AgentError as error:
            why_not = error.what
        if self.wrong_networks:
            why_not = "the network is not that of the profile"
        elif self.unknown:
            why_not = self.unknown[0]
        options = self.options
        sound = self._comparable([one for one in self.measurements if one.complete and not one.wrong])
        return baselines.judge(
            sound, entries, min_percent=options.min_percent, min_busbw=options.min_busbw, why_not=why_not
        )

    def connectivity(self) -> Judgement | None:
        """As the workload of that name judges it; None: it did not begin."""
        step = self.steps.get(CONNECTIVITY)
        if step is None:
            return None
        outcome = replace(self.of_step(step), record=self.noted.connectivity)
        if len(self.steps) > 2:  # what happened later is not about it
            outcome = replace(outcome, cause=None, lost={})
        return Connectivity().judge(self.context, outcome)

    def of_step(self, step: StepEnd) -> Outcome:
        """What is known of one step."""
        status = self.outcome.status if step.status is None else step.status
        # Of a very long output only the end is kept: without any mark it all is of the last step.
        unmarked = self.outcome.output if step.name == self.last and not self.outputs else ""
        output = self.outputs.get(step.name, unmarked)
        return replace(self.outcome, status=status, stuck=step.stuck or self.outcome.stuck, output=output)

    def incomplete(self) -> list[str]:
        """What is missing of the planned steps, also where the beginning of a very long output is not kept."""
        lines = [line for one in self.measurements for line in one.incomplete]
        lines += [f"{step} did not run" for step, _ in step_names(self.options) if step not in self.steps]
        lost = [one.step for one in self.measurements if one.step not in self.outputs and not one.sweeps]
        if lost:
            lines.append(f"{', '.join(lost)} is not in the last MiB of the output, which is all that is kept")
        return lines

    def where(self) -> str:
        """How many ranks ran, on how many pods."""
        return f"on {self.ranks} ranks of {count_text(len(self.context.plan.peers), 'pod')}"


def judgement(run: Ended) -> Judgement:
    connected = run.connectivity()
    end = _end(run, connected)
    found = measured.rows(run.tests, run.gate)
    saved, not_saved = _saved(run, end)
    reasons = [*_reasons(run, connected), *not_saved]
    measurements = Measurements(
        reasons=reasons,
        warnings=run.unknown,
        tables=[
            *(connected.measurements.tables if connected else ()),
            *measured.tables(found),
            *run.network.tables(),
        ],
        sweeps=[measured.told(sweep, run.gate, test.key.name) for test in run.tests for sweep in test.sweeps],
        versions={"Open MPI": str(run.mpi.version), **measured.versions(run.outputs), **run.network.versions},
        gate=run.gate.to_json(),
        record=_record(run),
    )
    files = {CONNECTIVITY_LOG: connected.text + run.outputs.get(CONNECTIVITY, "")} if connected else {}
    text = _text(run, end, found, reasons)
    return Judgement(end, (connected.text if connected else "") + text, measurements, LOG, {**files, **saved})


def _end(run: Ended, connected: Judgement | None) -> JobEnd:
    """In this order: programs and ways are there; results are right; why the run was ended, pods and ranks that
    failed; nothing is missing; the network is the right one; the speed."""
    if missing := _missing_programs(run):
        return missing
    if connected is not None and connected.end.code:
        return connected.end
    if without := [one.test for one in run.measurements if one.without_mpi]:
        # It runs and prints tables: each rank its own, of one GPU.
        what = f"{without[0]}_perf was built without MPI: every process took itself for the only one"
        why = "build nccl-tests with MPI=1 and MPI_HOME, and name its directory in A4_NCCL_TESTS_DIR"
        return JobEnd(Exit.WRONG_RESULT, what, why=why)
    if wrong := [line for one in run.measurements for line in one.wrong]:
        return _workload_end(run, "results of nccl-tests are wrong", wrong)
    if failed := _failed(run):
        return failed
    if incomplete := run.incomplete():
        return _workload_end(run, "the output of nccl-tests is not complete", incomplete)
    if run.wrong_networks:
        return _workload_end(run, WRONG, run.wrong_networks)
    if run.gate.status == "failed":
        return _workload_end(run, "nccl ran well but below its gate", run.gate.failures)
    return JobEnd(0, f"nccl is good: {', '.join(run.options.tests)} {run.where()}", origin="workload")


def _workload_end(run: Ended, what: str, reasons: Sequence[str]) -> JobEnd:
    why = [*at_most(reasons), *run.network.warnings[:5]]
    return JobEnd(Exit.WRONG_RESULT, what, why="\n".join(why), origin="workload")


def _missing_programs(run: Ended) -> JobEnd | None:
    step = run.steps.get(PROGRAMS)
    if step is None or step.status != Exit.MISSING_PROGRAM:
        return None
    said = (line for line in run.outputs.get(PROGRAMS, "").splitlines() if " is in none of " in line)
    what = next(said, "nccl-tests are not in this image")
    return JobEnd(Exit.MISSING_PROGRAM, what, run.context.where(run.context.lead), _hint(run))


def _hint(run: Ended) -> str:
    """Where nccl-tests were looked for, and what to do without them."""
    searched = ", ".join([*places(run.context), "PATH"])
    return (
        f"searched: {searched}; A4_NCCL_TESTS_DIR names another directory\n"
        "a4-agent run collectives measures the same with torch, without nccl-tests"
    )


def _failed(run: Ended) -> JobEnd | None:
    """The end of a run whose last step did not go well; None when it did."""
    of_last = _end_of_step(run, run.steps[run.last]) if run.last not in ("", PROGRAMS, CONNECTIVITY) else None
    return _failed_though_stuck(run) or of_last or broken_off(run.context, run.outcome)


def _failed_though_stuck(run: Ended) -> JobEnd | None:
    """A step before the last that was excused, though mpirun said that a rank failed: the next ones overwrote what
    the ranks of other pods had recorded."""
    for step in list(run.steps.values())[:-1]:
        code, sentence = reported_end(run.outputs.get(step.name, "")) or (0, "")
        if step.stuck and step.name != CONNECTIVITY and code not in (0, *FOLLOWED):
            return JobEnd(code, f"{step.name}: {sentence}", origin="workload")
    return None


def _went_along(run: Ended, step: StepEnd) -> bool:
    """Whether the ranks of a step that hung failed only because they were ended with it."""
    told, _ = reported_end(run.of_step(step).output) or (0, "")
    codes = [told, *(end.code for end in run.outcome.ranks.values())]
    return all(not code or code in FOLLOWED for code in codes)


def _end_of_step(run: Ended, step: StepEnd) -> JobEnd | None:
    """None when it went well."""
    done = next((one for one in run.measurements if one.step == step.name), None)
    hung = step.stuck and done is not None and done.complete and not run.outcome.lost
    if hung and _went_along(run, step):
        return None  # mpirun hung after the whole table, and its ranks went with it
    outcome = run.of_step(step)
    ranks = recorded_ends(run.context, outcome, run.layout)
    end = end_of_ranks(run.context, step.name, outcome, ranks)
    if not end.code:
        return None
    if end.code == Exit.MISSING_PROGRAM and end.origin == "workload":
        return end._replace(what=f"{end.what}: nccl-tests are not on that pod", why=_hint(run), origin="agent")
    said = [*(done.incomplete if done else ()), *run.network.warnings[:5]]
    return end._replace(why="\n".join(filter(None, [end.why, *said])))


def _reasons(run: Ended, connected: Judgement | None) -> list[str]:
    found = [*connected.measurements.reasons] if connected else []
    for one in run.measurements:
        found += [f"{one.test}_perf was built without MPI"] if one.without_mpi else []
        found += one.wrong
    found += run.incomplete() if run.measurements else []
    return [*found, *run.wrong_networks, *run.gate.failures]


def _text(run: Ended, end: JobEnd, found: Sequence[Sequence[Any]], reasons: Sequence[str]) -> str:
    """What people read in the log: the verdict first, then the network, the speed and the table."""
    lines = [end.what if end.code == 0 else f"nccl {run.where()}: failed: {end.what}"]
    known = str(run.network)
    lines += [f"network: {known}"] if known else []
    lines += [f"speed: {run.gate.status} ({run.gate.reason})"] if run.tests else []
    of_pods = next(iter(run.network.transports.values()), {})
    lines += [*at_most(reasons), *run.unknown, *uneven(of_pods)]
    lines += [f"NCCL on {line}" for line in run.network.warnings]
    return "\n  ".join(lines) + "\n" + measured.text_table(found)


def _record(run: Ended) -> dict[str, Any]:
    steps = [{"name": step.name, "status": step.status, "stuck": step.stuck} for step in run.steps.values()]
    ranks = as_json(run.outcome.ranks, run.layout.ranks)
    return {**ranks, "steps": steps, "network": str(run.network), "warnings": list(run.network.warnings)}


def _saved(run: Ended, end: JobEnd) -> tuple[dict[str, str], list[str]]:
    """A run that went well, as a baseline; and why it is not kept."""
    wanted = run.options.save_baseline
    if not wanted or end.code:
        return {}, []
    if run.unknown:  # it may have been another for some of them
        return {}, [f"--save-baseline {wanted}: nothing is saved: {line}" for line in run.unknown]
    context = run.context
    own = [path for path in context.baselines if path != shipped("env", "baselines.json")]
    path = wanted if wanted.startswith("/") else own[-1] if own else "baselines.json"
    name = wanted.rpartition("/")[2].removesuffix(".json") or wanted
    source = f"own run {context.run_id} of job epoch {context.plan.epoch}"
    try:
        old = baselines.parse_file(context.baselines[path]) if path in context.baselines else []
    except ValueError as error:
        return {}, [f"--save-baseline {wanted}: {path} is left as it is: {error}"]
    new = baselines.saved(run.tests, name, source)
    return ({path: baselines.file_text(baselines.merged(old, new))} if new else {}), []
