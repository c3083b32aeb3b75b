"""`torchrun`: your own program, by torchrun on every pod."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from agent.decide.torchrun import TorchrunTarget, set_by_agent, torchrun_launch, torchrun_target, with_command
from agent.errors import UsageError
from agent.launch import Launch, is_python
from agent.paths import shipped
from agent.workloads.base import FailedPart, Judgement, Measurements, Outcome, RunContext, Workload, run_variables
from agent.workloads.ends import end_without_failure
from agent.workloads.held_rank import check_held, hold, nobody_came
from agent.workloads.network import logs_of, users_logs, users_network
from agent.workloads.torch_failures import is_victim, rank_code, torchrun_failure
from agent.workloads.why_variables import why_variables


class ByTorchrun(Workload):
    """torchrun starts it on every pod."""

    def is_victim(self, status: int, left: FailedPart) -> bool:
        return is_victim(status, left)

    def rank_code(self, context: RunContext, outcome: Outcome) -> int | None:
        return rank_code(outcome)


class Torchrun(ByTorchrun):
    name = "torchrun"
    starts_ranks = True
    takes_without = True

    def check(self, context: RunContext) -> None:
        if not context.args:
            raise UsageError("torchrun needs a program", "a4-agent torchrun -- train.py --epochs 3")
        what, hint = set_by_agent(context.args)
        if what:
            raise UsageError(what, hint)
        target = _target(context)
        if target.kind == "script" and is_python(target.word):
            script = next((word for word in target.rest if word.endswith(".py")), "train.py")
            what = f"torchrun starts Python itself: it would read {target.word} as a script"
            raise UsageError(what, f"leave it out: a4-agent torchrun -- {script}")
        check_held(context, context.per_pod * len(context.plan.peers))
        if context.spec.without is not None and target.kind in ("", "path"):
            what = "with --without, torchrun takes a script, -m MODULE or --no-python PROGRAM"
            raise UsageError(what, f"a4-agent does not know how these words start a rank: {shlex.join(context.args)}")

    def launch(self, context: RunContext) -> Launch:
        """Raises SettingsError."""
        words = context.args
        if context.index == context.holder:
            python = context.environ.get("PYTHON_EXEC") or context.workload_python
            words = with_command(words, _target(context), python, hold(context))
        given = {"A4_SERIES_FILE": context.series_file, **users_logs(context)}
        return start_torchrun(context, words, given=given, cwd=context.spec.cwd)

    def programs(self, context: RunContext) -> Sequence[str]:
        target = _target(context)
        return [context.workload_python, *([target.word] if target.kind == "program" else [])]

    def files(self, context: RunContext) -> Sequence[str]:
        target = _target(context)
        return [target.word] if target.kind in ("script", "path") else []

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        network = users_network(context, outcome, logs_of(outcome))
        failure = nobody_came(context, outcome) or torchrun_failure(context, outcome)
        end = network.end(failure or end_without_failure(context, outcome, "torchrun"))
        return Judgement(end, network.text(), network.measurements(Measurements()))


def _target(context: RunContext) -> TorchrunTarget:
    return torchrun_target(context.args, context.environ)


def start_torchrun(
    context: RunContext, words: Sequence[str], *, given: Mapping[str, str], cwd: str, without: Sequence[str] = ()
) -> Launch:
    """torchrun of this pod with the program and arguments `words`.

    `given`: variables from the agent; `without`: those that the program must not get.
    """
    alone = len(context.plan.peers) == 1  # its name need not be in DNS
    given = {**torchrun_variables(context), **given}
    launch = torchrun_launch(
        python=context.workload_python,
        nodes=len(context.plan.peers),
        node_rank=context.plan.node_rank(context.index),
        per_node=context.per_pod,
        address="127.0.0.1" if alone else context.master,
        port=context.master_port,
        interface=context.interface,
        log_dir=context.torch_logs,
        args=words,
        env={name: value for name, value in {**context.environ, **given}.items() if name not in without},
        cwd=cwd,
    )
    return launch._replace(added=(*given, *launch.added), removed=tuple(without))


def torchrun_variables(context: RunContext) -> dict[str, str]:
    """What torchrun, and the processes that it starts, get from the agent."""
    given = {
        **run_variables(context),
        **why_variables(context),
        "A4_NODE_RANK": str(context.plan.node_rank(context.index)),
        # torchrun copies the error file of the rank that failed first to where its own would be.
        "TORCHELASTIC_ERROR_FILE": context.torch_error,
    }
    if context.keep_ranks:
        # torchrun takes this for the Python of its workers; what it starts makes it context.workload_python again.
        given["PYTHON_EXEC"] = shipped("entrypoints", "last-words-python.sh")
        given["A4_AGENT_PYTHON"] = context.python
        given["A4_WORKLOAD_PYTHON"] = context.environ.get("PYTHON_EXEC") or context.workload_python
        given["A4_LAST_WORDS"] = context.ranks_output
    return given
