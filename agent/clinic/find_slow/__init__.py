"""`find-slow`: GPUs alone, pairs of pods, all pods at once, to name those that are slow or hang."""

from __future__ import annotations

import json

from agent import wire
from agent.clinic.find_slow.stages import read_stages
from agent.clinic.find_slow.telling import node_shares, pairs_json, rail_maps, tell
from agent.clinic.find_slow.verdict import judge
from agent.decide.ending import JobEnd
from agent.decide.location import Place
from agent.decide.result import Result
from agent.decide.words import at_most, lines
from agent.errors import Exit, UsageError
from agent.launch import Launch, packed
from agent.paths import package_home, shipped
from agent.workloads.base import FailedPart, Judgement, Measurements, Outcome, RunContext, Workload, run_variables
from agent.workloads.ends import broken_off, first_failure
from agent.workloads.network import logs_of, own_logs, seen_network
from agent.workloads.option import Option, OptionParser, between
from agent.workloads.showing import Showing
from agent.workloads.torch_program import PRESETS

OVER = ("tcp", "gloo", "nccl")
MOST_GLOO_PODS = 8
FROM_TO = "a number of seconds from 0.1 to 60"
CONDUCTOR_GONE = "find-slow: the process on the first pod is gone"
"""What entrypoints/find-slow.py says on other pods then."""


class FindSlow(Workload):
    name = "find-slow"
    has_lives = False
    saves = False
    options = (
        Option(("--seconds",), "N", "how long each pair is measured", "1", type=between(0.1, 60, FROM_TO)),
        Option(
            ("--over",), "NAME", "tcp, gloo or nccl", "nccl where torch finds GPUs on all pods, else tcp", choices=OVER
        ),
    )

    def check(self, context: RunContext) -> None:
        options = OptionParser(self.name, self.options).parse_args(context.args)
        pods = len(context.plan.peers)
        if pods < 2:
            raise UsageError("find-slow compares pods: it needs at least two", "one pod: a4-agent doctor --here")
        if options.over == "gloo" and pods > MOST_GLOO_PODS:
            raise UsageError(
                f"--over gloo takes {MOST_GLOO_PODS} pods at most, and these are {pods}",
                "choose some by --hosts, or take --over tcp",
            )

    def launch(self, context: RunContext) -> Launch:
        options = OptionParser(self.name, self.options).parse_args(context.args)
        rank = context.plan.node_rank(context.index)
        named = context.environ.get("NCCL_SOCKET_IFNAME", "")
        interface = "" if named.startswith("^") else named.lstrip("=").partition(",")[0]
        given = {**run_variables(context), "A4_RECORD": context.record, **own_logs(context)}
        without = [name for name in PRESETS if name in context.environ and name not in context.spec.env]
        argv = [context.python, "-ES", shipped("entrypoints", "find-slow.py")]
        argv += ["--rank", str(rank), "--nodes", str(len(context.plan.peers))]
        argv += ["--lead", context.plan.peers[0].name, "--port", str(context.master_port), "--token", context.run_id]
        argv += ["--interface", interface or context.interface, "--seconds", str(options.seconds or 1.0)]
        argv += ["--torch", context.workload_python, *(["--over", options.over] if options.over else [])]
        if not rank:
            places = [without_host(peer.place) for peer in context.plan.peers]
            argv += ["--next", json.dumps([context.python, "-Es", "-m", __name__, packed(places)])]
        port = 0 if rank else context.master_port
        env = {name: value for name, value in {**context.environ, **given}.items() if name not in without}
        return Launch(argv, env, package_home(), added=tuple(given), removed=tuple(without), port=port)

    def progress(self, record: str) -> str:
        rounds = read_stages(record).rounds
        return f"round {rounds} of pairs is measured" if rounds else ""

    def is_victim(self, status: int, left: FailedPart) -> bool:
        return status == Exit.TRY_AGAIN and CONDUCTOR_GONE in left.output

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        """What was measured to the end counts, however the processes ended, unless a pod was lost."""
        stages, peers = read_stages(outcome.record), context.plan.peers
        verdict = judge([peer.place for peer in peers], stages.measured)
        told = tell(peers, stages.measured, verdict, stages.over or "tcp", stages.slow_gpus(), stages.slow_parts())
        network = seen_network(context, outcome, logs_of(outcome), step=self.name, used=False, must=True)
        measured = Measurements(
            tables=[*told.tables, *stages.tables(peers)],
            record={"over": stages.over, "rails": stages.rails, "pairs": pairs_json(peers, stages.measured)},
            versions=stages.versions,
        )
        if not stages.ended or outcome.told or outcome.lost:
            early = JobEnd(Exit.WRONG_RESULT, "every process ended with 0, but the record of the pairs ends early")
            lost = broken_off(context, outcome) if outcome.lost else None
            end = lost or first_failure(context, outcome, self.name) or broken_off(context, outcome) or early
            shown = told.table if stages.measured else ""
            return Judgement(end, shown, network.measurements(measured), "find-slow.log")
        more, what = stages.reasons(peers, not told.reasons), told.what
        if more:
            more_slow = stages.sentence(peers, {one.node for one in verdict.slow})
            what = ", and ".join(filter(None, [what if told.reasons else "", more_slow]))
        reasons = [*told.reasons, *more]
        code = Exit.WRONG_RESULT if reasons else Exit.OK
        end = JobEnd(code, what, why=lines(*at_most(told.reasons), *at_most(more)), origin="workload")
        found = [*told.found, *stages.findings(peers)]
        files = {**told.files, "findings.json": json.dumps([wire.to_json(one) for one in found], indent=1) + "\n"}
        said = [
            *stages.lines(peers),
            f"find-slow: {what}",
            *(f"  {one}" for one in at_most(more)),
            *network.lines(),
            told.text,
        ]
        measurements = network.measurements(measured._replace(reasons=reasons, found=found))
        return Judgement(network.end(end), "\n".join(said), measurements, "find-slow.log", files)

    def shown(self, result: Result) -> Showing:
        return Showing(maps=rail_maps(result), nodes=node_shares(result))


def without_host(place: Place) -> Place:
    """Hosts do not matter, and names of thousands would not fit into an argument."""
    return (*place[:-1], "") if len(place) > 2 else place
