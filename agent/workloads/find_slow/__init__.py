"""`find-slow`: TCP between pairs of pods, to name those that are slow or hang."""

from __future__ import annotations

import argparse
import json

from agent.decide.ending import JobEnd, from_status
from agent.decide.location import Place
from agent.decide.tail import last_lines
from agent.errors import Exit, UsageError
from agent.launch import Launch, packed
from agent.paths import package_home, shipped
from agent.workloads.base import FailedPart, Judgement, Kind, Measurements, Outcome, RunContext, Workload, run_variables
from agent.workloads.ends import broken_off
from agent.workloads.find_slow.record import read_pairs
from agent.workloads.find_slow.telling import pairs_json, tell
from agent.workloads.find_slow.verdict import judge
from agent.workloads.option import Option, OptionParser

CONDUCTOR_GONE = "find-slow: the process on the first pod is gone"
"""What entrypoints/find-slow.py says on other pods then."""


def seconds(text: str) -> float:
    """A type of options: from a tenth of a second to a minute."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 60")
    return value


class FindSlow(Workload):
    name = "find-slow"
    kind: Kind = "everywhere"
    options = (Option(("--seconds",), "N", "how long each pair is measured", "1", type=seconds),)

    def check(self, context: RunContext) -> None:
        super().check(context)
        if len(context.plan.peers) < 2:
            raise UsageError("find-slow compares pods: it needs two at least")

    def launch(self, context: RunContext) -> Launch:
        options = OptionParser(self.name, self.options).parse_args(context.args)
        rank = context.plan.node_rank(context.index)
        named = context.environ.get("NCCL_SOCKET_IFNAME", "")
        interface = "" if named.startswith("^") else named.lstrip("=").partition(",")[0]
        given = {**run_variables(context), "A4_RECORD": context.record}
        argv = [context.python, "-ES", shipped("entrypoints", "find-slow.py")]
        argv += ["--rank", str(rank), "--nodes", str(len(context.plan.peers))]
        argv += ["--lead", context.plan.peers[0].name, "--port", str(context.master_port), "--token", context.run_id]
        argv += ["--interface", interface or context.interface, "--seconds", str(options.seconds or 1.0)]
        if not rank:
            places = [without_host(peer.place) for peer in context.plan.peers]
            argv += ["--next", json.dumps([context.python, "-Es", "-m", __name__, packed(places)])]
        port = 0 if rank else context.master_port
        return Launch(argv, {**context.environ, **given}, package_home(), added=tuple(given), port=port)

    def progress(self, record: str) -> str:
        rounds = read_pairs(record).rounds
        return f"round {rounds} of pairs is measured" if rounds else ""

    def is_victim(self, status: int, left: FailedPart) -> bool:
        return status == Exit.TRY_AGAIN and CONDUCTOR_GONE in left.output

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        """What was measured to the end counts, however the processes ended."""
        record = read_pairs(outcome.record)
        peers = context.plan.peers
        told = tell(peers, record.measured, judge([peer.place for peer in peers], record.measured))
        pairs = {"pairs": pairs_json(peers, record.measured)}
        if record.ended and not outcome.told:
            measurements = Measurements(told.reasons, tables=told.tables, found=told.found, record=pairs)
            return Judgement(told.end, told.text, measurements, "find-slow.log", told.files)
        end = self._broken(context, outcome)
        return Judgement(end, told.table, Measurements(tables=told.tables, record=pairs), "find-slow.log")

    def _broken(self, context: RunContext, outcome: Outcome) -> JobEnd:
        if outcome.cause is None and outcome.first is not None:
            end = from_status(outcome.statuses[outcome.first], "find-slow", context.where(outcome.first))
            return end._replace(why=last_lines(outcome.failures.get(outcome.first, FailedPart()).output))
        what = "every process ended with 0, but the record of the pairs ends early"
        return broken_off(context, outcome) or JobEnd(Exit.WRONG_RESULT, what)


def without_host(place: Place) -> Place:
    """Hosts do not matter, and names of thousands would not fit into an argument."""
    return (*place[:-1], "") if len(place) > 2 else place
