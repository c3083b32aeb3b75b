"""`connectivity`: MPI ranks on every slot of every pod prove where they run, add up, and measure."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Mapping

from agent.decide.ending import JobEnd
from agent.decide.mpirun import Mpi
from agent.decide.ranks import RankEnd
from agent.decide.words import count_text
from agent.errors import Exit
from agent.launch import Launch
from agent.paths import package_home, shipped
from agent.workloads.base import Judgement, Measurements, Outcome, RunContext
from agent.workloads.connectivity.record import ConnectivityRecord
from agent.workloads.mpi import Layout, MpiWorkload, place_of_lost, start, told_by_mpirun, usable_mpi
from agent.workloads.option import Option, at_least
from agent.workloads.rank_record import PlannedRanks, RecordVerdict, read_record

LOG = "connectivity-test.log"


def sizes(text: str) -> list[int]:
    """A type of options: numbers of bytes, with commas between."""
    found = [int(word) for word in text.split(",")] if re.fullmatch(r"[0-9]{1,12}(,[0-9]{1,12})*", text) else [0]
    if 0 in found:
        raise ArgumentTypeError(f"{text!r} is not a list of sizes in bytes, such as 1048576,8388608")
    return found


OPTIONS = (
    Option(("--sizes",), "A,B", "message sizes in bytes", "1048576,8388608", type=sizes),
    Option(("--repeats",), "N", "messages of each measurement, at most", "100", type=at_least(1)),
)


class Connectivity(MpiWorkload):
    name = "connectivity"
    options = OPTIONS

    def launch(self, context: RunContext) -> Launch | None:
        """Raises MissingProgram."""
        if context.index != context.lead:
            return None
        given = {
            "A4_TOKEN_FILE": context.token_file,
            "A4_RECORD": context.record,
            "A4_MPI_VERSION": str(usable_mpi(context).version),
            "A4_PACKAGES": package_home(),
        }
        program = [context.python, "-I", shipped("entrypoints", "connectivity.py"), *context.args]
        every_slot = Layout(context.plan.ranks, context.plan.slots)
        return start(context, program, every_slot, given=given, cwd="/")

    def is_ending(self, output: str, record: str, ranks: Mapping[int, RankEnd]) -> bool:
        finished = read_record(record, ConnectivityRecord()).finished
        return super().is_ending(output, record, ranks) or finished is not None

    def judge_ranks(self, context: RunContext, outcome: Outcome) -> Judgement:
        mpi = usable_mpi(context)
        record = read_record(outcome.record, ConnectivityRecord())
        planned = PlannedRanks(context.plan.slots, context.names, outcome.tokens)
        verdict = record.judge(planned)
        end = _end(context, mpi, outcome, record, verdict)
        measurements = Measurements(
            reasons=verdict.reasons,
            tables=record.tables(planned),
            versions={"Open MPI": str(mpi.version)},
            phases=record.phases(),
            record=record.as_json(planned),
        )
        # Ranks that did not report are no finding where the end has a cause.
        good = "every rank is where the plan puts it, the sum is right" if end.code == 0 else f"failed: {end.what}"
        where = f"{count_text(context.plan.ranks, 'rank')} on {count_text(len(planned.names), 'pod')}"
        lines = [f"connectivity of {where} (Open MPI {mpi.version}): {good}"]
        lines += [f"  {reason}" for reason in verdict.reasons if verdict.code]
        table = record.table(planned) if record.pairs else ""
        return Judgement(end, "\n".join(lines) + f"\n{table}", measurements, LOG)


def _end(context: RunContext, mpi: Mpi, outcome: Outcome, record: ConnectivityRecord, verdict: RecordVerdict) -> JobEnd:
    """The ranks' own record first, then why the run was ended, lost pods, and what mpirun's status means."""
    reasons = "\n".join(verdict.reasons)
    if verdict.code:
        return JobEnd(verdict.code, "the connectivity test found something wrong", why=reasons)
    if outcome.cause is not None:
        return outcome.cause
    if verdict.code is None and outcome.lost:
        what = "pods were lost during the connectivity test"
        return JobEnd(Exit.TRY_AGAIN, what, why=f"{context.losses(outcome.lost)}\n{reasons}")
    started = record.ranks is not None
    code, sentence, of_rank = told_by_mpirun(mpi, outcome, started=started, finished="every rank finished")
    if code:
        where = place_of_lost(context, outcome.output) if code == Exit.TRY_AGAIN else ""
        return JobEnd(code, sentence, where, reasons, origin="workload" if of_rank else "agent")
    if verdict.code is None:
        what = "ranks of the connectivity test are missing, and nothing else explains it"
        return JobEnd(Exit.WRONG_RESULT, what, why=f"{sentence}\n{reasons}")
    what = f"connectivity is good: {count_text(context.plan.ranks, 'rank')} on {count_text(len(context.names), 'pod')}"
    return JobEnd(0, what, origin="workload")
