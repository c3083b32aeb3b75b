"""`connectivity`: MPI ranks on every slot of every pod prove where they run, add up, and measure."""

from __future__ import annotations

from collections.abc import Mapping

from agent.decide.ending import JobEnd, from_error
from agent.decide.mpirun import Mpi
from agent.decide.ranks import RankEnd
from agent.errors import Exit, MissingProgram
from agent.launch import Launch
from agent.paths import shipped
from agent.workloads.base import Findings, Judgement, Kind, Outcome, RunContext, Workload
from agent.workloads.connectivity.record import Record, as_json, judge, pairs_table, parse_record, table
from agent.workloads.mpi import Layout, place_of_lost, start, told_by_mpirun, usable_mpi
from agent.workloads.option import Option
from agent.workloads.rank_record import Verdict
from agent.workloads.usage import wrong_usage

LOG = "connectivity-test.log"


OPTIONS = (
    Option(("--sizes",), "A,B", "message sizes in bytes", "1048576,8388608"),
    Option(("--repeats",), "N", "messages of each measurement, at most", "100"),
)


class Connectivity(Workload):
    name = "connectivity"
    options = OPTIONS
    kind: Kind = "mpi"

    def launch(self, context: RunContext) -> Launch | None:
        """Raises MissingProgram."""
        if context.index != context.lead:
            return None
        given = {
            "A4_TOKEN_FILE": context.token_file,
            "A4_RECORD": context.record,
            "A4_MPI_VERSION": str(usable_mpi(context).version),
        }
        program = [context.python, shipped("entrypoints", "connectivity.py"), *context.args]
        every_slot = Layout(context.plan.ranks, context.plan.slots)
        return start(context, program, every_slot, given=given, cwd="/")

    def is_ending(self, output: str, record: str, ranks: Mapping[int, RankEnd]) -> bool:
        return super().is_ending(output, record, ranks) or parse_record(record).finished is not None

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        try:
            mpi = usable_mpi(context)
        except MissingProgram as error:  # nothing was started, for the same reason
            return Judgement(outcome.cause or from_error(error))
        record = parse_record(outcome.record)
        names = [peer.name for peer in context.plan.peers]
        verdict = judge(record, outcome.tokens, context.plan.slots, names)
        end = _end(context, mpi, outcome, record, verdict)
        text = _text(context, mpi, record, verdict, end, names)
        record_json = as_json(record, names, context.plan.slots)
        findings = Findings(
            reasons=verdict.reasons,
            tables=[pairs_table(record, names, context.plan.slots)] if record.pairs else (),
            versions={"Open MPI": str(mpi.version)},
            record=record_json,
        )
        return Judgement(end, text, findings, LOG)


def _end(context: RunContext, mpi: Mpi, outcome: Outcome, record: Record, verdict: Verdict) -> JobEnd:
    """The ranks' own record first, then why the run was ended, lost pods, and what mpirun's status means."""
    reasons = "\n".join(verdict.reasons)
    if verdict.code:
        return JobEnd(verdict.code, "the connectivity test found something wrong", why=reasons)
    if outcome.cause is not None:
        return outcome.cause
    if verdict.code is None and outcome.lost:
        what = "pods were lost during the connectivity test"
        return JobEnd(Exit.TRY_AGAIN, what, why=f"{outcome.losses}\n{reasons}")
    started = record.ranks is not None
    told = told_by_mpirun(mpi, outcome, started=started, finished="every rank finished")
    code, sentence, of_rank = told
    if code == Exit.USAGE and (usage := wrong_usage(outcome.output)):
        return JobEnd(code, f"connectivity: {usage}", origin="workload")
    if code:
        where = place_of_lost(context, outcome.output) if code == Exit.TRY_AGAIN else ""
        return JobEnd(code, sentence, where, reasons, origin="workload" if of_rank else "agent")
    if verdict.code is None:
        what = "ranks of the connectivity test are missing, and nothing else explains it"
        return JobEnd(Exit.WRONG_RESULT, what, why=f"{sentence}\n{reasons}")
    ranks, pods = context.plan.ranks, len(context.plan.peers)
    return JobEnd(0, f"connectivity is good: {ranks} ranks on {pods} pods", origin="workload")


def _text(context: RunContext, mpi: Mpi, record: Record, verdict: Verdict, end: JobEnd, names: list[str]) -> str:
    """The table and, over it, what was tested. Ranks that did not report are no finding where the end has a cause."""
    ranks, pods = context.plan.ranks, len(context.plan.peers)
    good = "every rank is where the plan puts it, the sum is right" if end.code == 0 else f"NOT GOOD: {end.what}"
    lines = [f"connectivity of {ranks} ranks on {pods} pods (Open MPI {mpi.version}): {good}"]
    lines += [f"  {reason}" for reason in verdict.reasons if verdict.code]
    measured = table(record, names, context.plan.slots) if record.pairs else ""
    return "\n".join(lines) + f"\n{measured}"
