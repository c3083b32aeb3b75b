"""What is known of an nccl run that is over: its steps, tables, logs and ranks, and whether it was fast enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent import wire
from agent.decide.words import count_text
from agent.errors import AgentError
from agent.fabrics import FABRICS
from agent.workloads.base import Judgement, Outcome, RunContext
from agent.workloads.connectivity import Connectivity
from agent.workloads.mpi import usable_mpi
from agent.workloads.nccl import baselines, measured
from agent.workloads.nccl.baselines import KnownBaseline, SpeedGate
from agent.workloads.nccl.notes import CONNECTIVITY, Noted
from agent.workloads.nccl.options import parse_options
from agent.workloads.nccl.steps import known_baselines, processes, step_names
from agent.workloads.network import NcclNetwork, unknown_on
from agent.workloads.step_record import StepEnd, read_steps


class Ended:
    """Raises AgentError where nothing can have been started."""

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
        is_last = step.name == next(reversed(self.steps))
        output = self.outputs.get(step.name, self.outcome.output if is_last and not self.outputs else "")
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
        peers = self.context.plan.peers
        return f"on {self.ranks} ranks of {count_text(len(peers), 'pod')}"
