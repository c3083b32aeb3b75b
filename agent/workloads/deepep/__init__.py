"""`deepep`: DeepEP's own tests of expert parallelism between nodes, and what they measure.

One MPI rank per pod: the test starts a process for each GPU itself. mpirun's status proves nothing and its
output mixes the nodes, so each pod keeps what its own test printed (entrypoints/deepep-node.sh) and reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.ranks import RankEnd, RanksVerdict, as_json
from agent.decide.result import Result
from agent.decide.words import at_most, lines
from agent.errors import Exit, SettingsError
from agent.launch import Launch
from agent.paths import DEEPEP_DIR, shipped
from agent.workloads.base import Judgement, Measurements, Outcome, RunContext
from agent.workloads.deepep.elastic import ENDLESS
from agent.workloads.deepep.options import OPTIONS, Asked, asked
from agent.workloads.deepep.printed import Node, figures, incomplete, read_node, tables, text_table, versions, warnings
from agent.workloads.deepep.speed import MAPPING, Speed, judge_speed
from agent.workloads.mpi import Layout, MpiWorkload, end_of_ranks, recorded, recorded_ends, start, usable_mpi
from agent.workloads.showing import Showing

LOG = "deepep-test.log"
GPUS = 8
"""test_internode.py asserts it; for test_ep.py it is the default."""
LEAST_PODS = 2
PORT = 29500
PRESSURE = "--pressure-test-mode"


class DeepEp(MpiWorkload):
    name = "deepep"
    options = OPTIONS
    passes_on = "DeepEP's test"
    uses_fabric = True
    imports_torch = True
    shows_collective = re.compile(rb" passed\b|Running all test cases:")
    output_bytes = 1 << 20
    """Some 250 lines of every node; of the elastic test, 6000, which the nodes keep."""

    def launch(self, context: RunContext) -> Launch | None:
        """Raises SettingsError, UsageError and MissingProgram."""
        test, _, args = _asked(context)
        if context.index != context.lead:
            return None
        script = shipped("entrypoints", "deepep-node.sh")
        program = ["sh", context.rank_script, "sh", script, *args]
        # mpirun, ssh and the shells live without the preloaded library, which is for the test alone.
        preload = context.environ.get("LD_PRELOAD", "")
        bare = {name: value for name, value in context.environ.items() if name != "LD_PRELOAD"}
        given = {
            "WORLD_SIZE": str(len(context.plan.peers)),  # of nodes, to DeepEP; RANK is set where each rank starts
            "MASTER_ADDR": context.master,
            # The pods' own is torchrun's: only one of the shell is meant for this.
            "MASTER_PORT": context.spec.env.get("MASTER_PORT", str(PORT)),
            "A4_DEEPEP_DIR": context.environ.get("A4_DEEPEP_DIR") or DEEPEP_DIR,
            "A4_WORKLOAD_PYTHON": context.workload_python,
            "A4_NOTES_DIR": context.notes_dir,
            **({"A4_DEEPEP_TEST": test} if test else {}),
            **({"A4_DEEPEP_PRELOAD": preload} if preload else {}),
            **recorded(context),
        }
        launch = start(replace(context, environ=bare), program, _layout(context), given=given, cwd="/")
        endless = re.search(rf"{PRESSURE}[= ](?!0\b)|{ENDLESS}\b", " ".join(args))
        note = "a pressure test has no end of its own and no verdict but that of a limit: end it with Ctrl-C"
        return launch._replace(
            port=int(given["MASTER_PORT"]),
            removed=("LD_PRELOAD",) if preload else (),
            notes=(*launch.notes, *([note] if endless else [])),
        )

    def ranks_over(self, context: RunContext, ranks: Mapping[int, RankEnd]) -> bool:
        return _layout(context).over_on(context.plan.node_rank(context.index), ranks)

    def inspect(self, context: RunContext, files: Mapping[str, str]) -> Node | None:
        if "about" not in files:
            return None
        return read_node(files["about"], files.get("output", ""), files.get("errors", ""), context.args)

    def judge_ranks(self, context: RunContext, outcome: Outcome) -> Judgement:
        (_, limits, _), mpi = _asked(context), usable_mpi(context)
        order = context.indices
        ranks = recorded_ends(context, outcome, _layout(context))
        nodes = {index: wire.from_json(Node, outcome.notes[index]) for index in order if outcome.notes.get(index)}
        whole = len(nodes) == len(order) and all(node.whole for node in nodes.values())
        speed = judge_speed(nodes, len(order), limits, context.environ.get(MAPPING)) if whole else None
        reasons = list(speed.reasons) if speed else []
        if nodes or ranks.started:
            reasons += [why for index in order for why in incomplete(nodes.get(index), f"pod {index}")]
        end = _end(context, outcome, ranks, nodes, reasons)
        measurements = Measurements(
            reasons=reasons,
            warnings=warnings(nodes),
            tables=tables(nodes),
            versions={"Open MPI": str(mpi.version), **versions(nodes)},
            gate=speed.gate if speed else None,
            record={**as_json(outcome.ranks, len(order)), "nodes": {str(i): wire.to_json(nodes[i]) for i in nodes}},
        )
        cut = "\n" if outcome.output and not outcome.output.endswith("\n") else ""  # in the line of a case
        return Judgement(end, cut + _text(end, nodes, reasons, speed), measurements, LOG)

    def shown(self, result: Result) -> Showing:
        return Showing(figures(result))


def _layout(context: RunContext) -> Layout:
    return Layout(len(context.plan.peers), 1)


def _asked(context: RunContext) -> Asked:
    """Raises SettingsError for pods that the test cannot do with, and UsageError."""
    if (pods := len(context.plan.peers)) < LEAST_PODS:
        few = f"deepep measures what goes between pods: it needs {LEAST_PODS} or more, and this run has {pods}"
        raise SettingsError([few], "NVLink inside a pod is tested by tests/test_intranode.py of DeepEP")
    if context.plan.slots != GPUS:
        raise SettingsError([f"deepep needs {GPUS} GPUs in every pod; GPUS_PER_NODE is {context.plan.slots}"])
    return asked(context.args)


def _end(
    context: RunContext,
    outcome: Outcome,
    ranks: RanksVerdict,
    nodes: Mapping[int, Node],
    reasons: list[str],
) -> JobEnd:
    """As of any MPI program; only a wrong result and what is missing say more than the code of the rank. When all
    ranks ended well, what they printed decides."""
    told = end_of_ranks(context, "deepep", outcome, ranks)
    errors = [f"pod {index}: {node.error}" for index, node in nodes.items() if node.error]
    why = "\n".join(at_most([*errors, *reasons]))
    if told.code and told.origin == "workload":
        return _failed(context, told, ranks, nodes, why)
    if told.code:
        return told._replace(why=lines(told.why, why))
    pods = len(context.plan.peers)
    if any(not node.whole for node in nodes.values()) or len(nodes) < pods:
        if outcome.cause is not None:
            return outcome.cause._replace(why=lines(outcome.cause.why, why))
        what = f"DeepEP's test ended with 0 on all {pods} nodes, but its output is not complete"
        return JobEnd(Exit.WRONG_RESULT, what, why=why, origin="workload")
    if reasons:
        return JobEnd(Exit.WRONG_RESULT, "DeepEP is right, but slow", why=why, origin="workload")
    cases = " or ".join(sorted({f"{node.cases} of {node.cases}" for node in nodes.values()}))
    return JobEnd(0, f"DeepEP is good: {cases} cases passed on each of {pods} nodes", origin="workload")


def _failed(context: RunContext, told: JobEnd, ranks: RanksVerdict, nodes: Mapping[int, Node], why: str) -> JobEnd:
    """The end when a rank has failed. The others were ended for it."""
    first = None if ranks.first is None else context.plan.peers[ranks.first].index
    where = "" if first is None else context.where(first)
    missing = {index: node.missing for index, node in nodes.items() if node.missing}
    if missing:
        index = first if first in missing else min(missing)
        what = f"deepep cannot be started: {missing[index]}"
        return JobEnd(Exit.MISSING_PROGRAM, what, context.where(index), why)
    wrong = {index: node for index, node in nodes.items() if node.is_wrong}
    if wrong:
        index = first if first in wrong else min(wrong)
        what = f"DeepEP's result is wrong: a check failed in case {wrong[index].open[0]}"
        return JobEnd(Exit.WRONG_RESULT, what, context.where(index), why, origin="workload")
    return told._replace(where=where, why=lines(told.why, why))


def _text(end: JobEnd, nodes: Mapping[int, Node], reasons: list[str], speed: Speed | None) -> str:
    """The table and, over it, what was tested and found."""
    known = versions(nodes).get("DeepEP")
    scripts = ", ".join(sorted({node.script for node in nodes.values() if node.script}))
    lines = [end.what, f"  tested: {scripts}" + (f" (DeepEP {known})" if known else "")] if scripts else [end.what]
    lines += [f"  {line}" for line in at_most([*warnings(nodes), *reasons])]
    if speed and not speed.reasons:
        lines.append(f"  speed {speed.gate['status']}: {speed.gate['reason']}")
    figures = text_table(nodes) if any(node.script for node in nodes.values()) else ""
    return "\n".join(lines) + (f"\nbest of each node in GB/s\n{figures}" if figures else "\n")
