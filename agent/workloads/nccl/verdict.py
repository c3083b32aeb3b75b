"""How an nccl run ended: from its steps, tables, logs and ranks to the verdict, the text and result.json."""

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
from agent.workloads.base import Findings, Judgement, Outcome, RunContext
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
    """What is known of an nccl run that is over. Raises AgentError where nothing can have been started."""

    def __init__(self, context: RunContext, outcome: Outcome) -> None:
        self.context = context
        self.options = parse_options(context.args, context.profile)
        self.mpi, self.layout = usable_mpi(context), processes(context, self.options)
        self.steps = {step.name: step for step in read_steps(outcome.record)}
        last = next(reversed(self.steps), "")
        # Where no rank of the last step started, the records are still those of a step before.
        self.outcome = replace(outcome, ranks={i: end for i, end in outcome.ranks.items() if end.step == last})
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
        self.tests = self._tests([one for one in self.measurements if not one.without_mpi])
        self.wrong_networks = self.network.wrong(context.profile)
        done = [one.step for one in self.measurements if one.complete]
        judged = [i for i in context.indices if i not in outcome.lost] if context.profile in FABRICS else ()
        self.unknown = unknown_on(self.network.silent(done, judged))
        self.gate = self._gate()

    def _tests(self, measurements: Sequence[measured.Measurement]) -> list[baselines.Runs]:
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
        sound = self._tests([one for one in self.measurements if one.complete and not one.wrong])
        return baselines.judge(
            sound, entries, min_percent=options.min_percent, min_busbw=options.min_busbw, why_not=why_not
        )

    # The end

    def judgement(self) -> Judgement:
        connected = self._connectivity()
        end = self._end(connected)
        found = measured.rows(self.tests, self.gate)
        saved, not_saved = self._saved(end)
        reasons = [*self._reasons(connected), *not_saved]
        findings = Findings(
            reasons=reasons,
            warnings=self.unknown,
            tables=[
                *(connected.findings.tables if connected else ()),
                *measured.tables(found),
                *self.network.tables(),
            ],
            sweeps=[measured.told(sweep, self.gate, test.name) for test in self.tests for sweep in test.sweeps],
            versions={"Open MPI": str(self.mpi.version), **measured.versions(self.outputs), **self.network.versions},
            gate=self.gate.to_json(),
            record=self._record(),
        )
        files = {CONNECTIVITY_LOG: connected.text + self.outputs.get(CONNECTIVITY, "")} if connected else {}
        text = self._text(end, found, reasons)
        return Judgement(end, (connected.text if connected else "") + text, findings, LOG, {**files, **saved})

    def _connectivity(self) -> Judgement | None:
        """As the workload of that name judges it; None: it did not begin."""
        step = self.steps.get(CONNECTIVITY)
        if step is None:
            return None
        outcome = replace(self._of_step(step), record=self.noted.connectivity)
        if len(self.steps) > 2:  # what happened later is not about it
            outcome = replace(outcome, cause=None, lost={})
        return Connectivity().judge(self.context, outcome)

    def _of_step(self, step: StepEnd) -> Outcome:
        """What is known of one step."""
        status = self.outcome.status if step.status is None else step.status
        # Of a very long output only the end is kept: without any mark it all is of the last step.
        is_last = step.name == next(reversed(self.steps))
        output = self.outputs.get(step.name, self.outcome.output if is_last and not self.outputs else "")
        return replace(self.outcome, status=status, stuck=step.stuck or self.outcome.stuck, output=output)

    def _end(self, connected: Judgement | None) -> JobEnd:
        """In this order: programs and ways are there; results are right; why the run was ended, pods and ranks that
        failed; nothing is missing; the network is the right one; the speed."""
        if missing := self._missing_programs():
            return missing
        if connected is not None and connected.end.code:
            return connected.end
        if without := [one.test for one in self.measurements if one.without_mpi]:
            return self._without_mpi(without[0])
        if wrong := [line for one in self.measurements for line in one.wrong]:
            return self._workload_end("results of nccl-tests are wrong", wrong)
        if failed := self._failed():
            return failed
        if incomplete := self._incomplete():
            return self._workload_end("the output of nccl-tests is not complete", incomplete)
        if self.wrong_networks:
            return self._workload_end(WRONG, self.wrong_networks)
        if self.gate.status == "failed":
            return self._workload_end("nccl ran well but below its gate", self.gate.failures)
        return JobEnd(0, f"nccl is good: {', '.join(self.options.tests)} {self._where()}", origin="workload")

    def _workload_end(self, what: str, reasons: Sequence[str]) -> JobEnd:
        why = [*at_most(reasons), *self.network.warnings[:5]]
        return JobEnd(Exit.WRONG_RESULT, what, why="\n".join(why), origin="workload")

    def _where(self) -> str:
        """How many ranks ran, on how many pods."""
        peers = self.context.plan.peers
        return f"on {self.ranks} ranks of {count_text(len(peers), 'pod')}"

    def _missing_programs(self) -> JobEnd | None:
        step = self.steps.get(PROGRAMS)
        if step is None or step.status != Exit.MISSING_PROGRAM:
            return None
        said = (line for line in self.outputs.get(PROGRAMS, "").splitlines() if " is in none of " in line)
        what = next(said, "nccl-tests are not in this image")
        return JobEnd(Exit.MISSING_PROGRAM, what, self.context.where(self.context.lead), self._hint())

    def _hint(self) -> str:
        """Where nccl-tests were looked for, and what to do without them."""
        searched = ", ".join([*places(self.context), "PATH"])
        return (
            f"searched: {searched}; A4_NCCL_TESTS_DIR names another directory\n"
            "a4-agent run collectives measures the same with torch, without nccl-tests"
        )

    def _without_mpi(self, test: str) -> JobEnd:
        """Such a build runs and prints tables: each rank its own, of one GPU."""
        what = f"{test}_perf was built without MPI: every process took itself for the only one"
        why = "build nccl-tests with MPI=1 and MPI_HOME, and name its directory in A4_NCCL_TESTS_DIR"
        return JobEnd(Exit.WRONG_RESULT, what, why=why)

    def _failed(self) -> JobEnd | None:
        """The end of a run whose last step did not go well; None when it did."""
        last = next(reversed(self.steps.values()), None)
        if last is None or last.name in (PROGRAMS, CONNECTIVITY):
            last = None
        told = self._failed_though_stuck() or (None if last is None else self._end_of_step(last))
        if told is not None:
            return told
        return broken_off(self.outcome)

    def _failed_though_stuck(self) -> JobEnd | None:
        """A step before the last that was excused, though mpirun said that a rank failed: the next ones overwrote what
        the ranks of other pods had recorded."""
        for step in list(self.steps.values())[:-1]:
            code, sentence = reported_end(self.outputs.get(step.name, "")) or (0, "")
            if step.stuck and step.name != CONNECTIVITY and code not in (0, *FOLLOWED):
                return JobEnd(code, f"{step.name}: {sentence}", origin="workload")
        return None

    def _went_along(self, step: StepEnd) -> bool:
        """Whether the ranks of a step that hung failed only because they were ended with it."""
        told, _ = reported_end(self._of_step(step).output) or (0, "")
        codes = [told, *(end.code for end in self.outcome.ranks.values())]
        return all(not code or code in FOLLOWED for code in codes)

    def _end_of_step(self, step: StepEnd) -> JobEnd | None:
        """None when it went well."""
        done = next((one for one in self.measurements if one.step == step.name), None)
        hung = step.stuck and done is not None and done.complete and not self.outcome.lost
        if hung and self._went_along(step):
            return None  # mpirun hung after the whole table, and its ranks went with it
        outcome = self._of_step(step)
        ranks = recorded_ends(self.context, outcome, self.layout)
        end = end_of_ranks(self.context, step.name, outcome, ranks)
        if not end.code:
            return None
        if end.code == Exit.MISSING_PROGRAM and end.origin == "workload":
            return end._replace(what=f"{end.what}: nccl-tests are not on that pod", why=self._hint(), origin="agent")
        said = [*(done.incomplete if done else ()), *self.network.warnings[:5]]
        return end._replace(why="\n".join(filter(None, [end.why, *said])))

    def _incomplete(self) -> list[str]:
        """What is missing of the planned steps, also where the beginning of a very long output is not kept."""
        lines = [line for one in self.measurements for line in one.incomplete]
        lines += [f"{step} did not run" for step, _ in step_names(self.options) if step not in self.steps]
        lost = [one.step for one in self.measurements if one.step not in self.outputs and not one.sweeps]
        if lost:
            lines.append(f"{', '.join(lost)} is not in the last MiB of the output, which is all that is kept")
        return lines

    # What is told

    def _reasons(self, connected: Judgement | None) -> list[str]:
        found = [*connected.findings.reasons] if connected else []
        for one in self.measurements:
            found += [f"{one.test}_perf was built without MPI"] if one.without_mpi else []
            found += one.wrong
        found += self._incomplete() if self.measurements else []
        return [*found, *self.wrong_networks, *self.gate.failures]

    def _text(self, end: JobEnd, found: Sequence[Sequence[Any]], reasons: Sequence[str]) -> str:
        """What people read in the log: the verdict first, then the network, the speed and the table."""
        lines = [end.what if end.code == 0 else f"nccl {self._where()}: NOT GOOD: {end.what}"]
        known = str(self.network)
        lines += [f"network: {known}"] if known else []
        lines += [f"speed: {self.gate.status} ({self.gate.reason})"] if self.tests else []
        of_pods = next(iter(self.network.transports.values()), {})
        lines += [*at_most(reasons), *self.unknown, *uneven(of_pods)]
        lines += [f"NCCL on {line}" for line in self.network.warnings]
        return "\n  ".join(lines) + "\n" + measured.text_table(found)

    def _record(self) -> dict[str, Any]:
        steps = [{"name": step.name, "status": step.status, "stuck": step.stuck} for step in self.steps.values()]
        ranks = as_json(self.outcome.ranks, self.layout.ranks)
        return {**ranks, "steps": steps, "network": str(self.network), "warnings": list(self.network.warnings)}

    def _saved(self, end: JobEnd) -> tuple[dict[str, str], list[str]]:
        """A run that went well, as a baseline; and why it is not kept."""
        wanted = self.options.save_baseline
        if not wanted or end.code:
            return {}, []
        if self.unknown:  # it may have been another for some of them
            return {}, [f"--save-baseline {wanted}: nothing is saved: {line}" for line in self.unknown]
        context = self.context
        own = [path for path in context.baselines if path != shipped("env", "baselines.json")]
        path = wanted if wanted.startswith("/") else own[-1] if own else "baselines.json"
        name = wanted.rpartition("/")[2].removesuffix(".json") or wanted
        source = f"own run {context.run_id} of job epoch {context.plan.epoch}"
        try:
            old = baselines.parse_file(context.baselines[path]) if path in context.baselines else []
        except ValueError as error:
            return {}, [f"--save-baseline {wanted}: {path} is left as it is: {error}"]
        new = baselines.saved(self.tests, name, source)
        return ({path: baselines.file_text(baselines.merged(old, new))} if new else {}), []
