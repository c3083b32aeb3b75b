"""What all workloads have in common that mpirun starts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.decide.ending import JobEnd, exit_code, from_error, signal_name
from agent.decide.environment import prepended
from agent.decide.mpirun import Mpi, mpirun_launch
from agent.decide.mpirun_end import MpirunEnd, lost_daemon, mpirun_end, reported_end
from agent.decide.ranks import FOLLOWED, RankEnd, RanksVerdict, ranks_verdict
from agent.decide.words import lines
from agent.errors import AgentError, Exit, MissingProgram, UsageError
from agent.launch import Launch
from agent.paths import shipped
from agent.workloads.base import Judgement, Kind, Outcome, RunContext, Workload, run_variables
from agent.workloads.why_variables import why_variables

MOST_ARGUMENTS = (128 << 10) - len("OMPI_ARGV=\0")
"""Open MPI gives each rank all its arguments in one variable, too, and Linux takes no longer one."""


class MpiWorkload(Workload):
    """mpirun on the lead starts its ranks on all pods."""

    kind: Kind = "mpi"

    def check(self, context: RunContext) -> None:
        check_length(context.args)
        super().check(context)

    def is_ending(self, output: str, record: str, ranks: Mapping[int, RankEnd]) -> bool:
        return reported_end(output, ranks) is not None

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        try:
            return self.judge_ranks(context, outcome)
        except AgentError as error:  # nothing was started, for the same reason
            return Judgement(outcome.cause or from_error(error))

    @abstractmethod
    def judge_ranks(self, context: RunContext, outcome: Outcome) -> Judgement:
        """The verdict over the whole run. Raises AgentError for what cannot have been started."""


class Layout(NamedTuple):
    """How ranks are spread over pods: slot by slot, in the order of the plan."""

    ranks: int
    per_pod: int

    def pod(self, rank: int) -> int:
        """Node rank of the pod with this rank."""
        return rank // self.per_pod

    def over_on(self, node_rank: int, ranks: Mapping[int, RankEnd]) -> bool:
        """Has every rank of this pod recorded its end?"""
        # The slice stops at the end of the range, because the last pod may have fewer ranks.
        here = range(self.ranks)[node_rank * self.per_pod :][: self.per_pod]
        return all(rank in ranks and ranks[rank].code is not None for rank in here)


def layout(context: RunContext) -> Layout:
    """How many ranks are wanted, and where. Raises UsageError when the pods have no room for them."""
    spec, slots = context.spec, context.plan.slots
    if spec.per_node > slots and not (spec.mpi and spec.mpi.oversubscribe):
        what = f"-N {spec.per_node}: a pod has {slots} slots (GPUS_PER_NODE)"
        raise UsageError(what, "with --oversubscribe it may have more ranks")
    per_pod = context.per_pod
    room = per_pod * len(context.plan.peers)
    if spec.ranks > room:
        pods = f"{len(context.plan.peers)} pods of {per_pod}"
        hint = "take more pods or fewer ranks, or give -N and --oversubscribe"
        raise UsageError(f"-np {spec.ranks}: there are {room} slots ({pods})", hint)
    return Layout(spec.ranks or room, per_pod)


def usable_mpi(context: RunContext) -> Mpi:
    """The lead's mpirun. Raises MissingProgram when there is none that can be used."""
    if context.mpi is None or context.mpi.problem:
        why = context.mpi.problem if context.mpi else "this pod does not know its mpirun"
        raise MissingProgram(why, "the image needs Open MPI 4 or 5")
    return context.mpi


def start(context: RunContext, program: Sequence[str], ranks: Layout, *, given: Mapping[str, str], cwd: str) -> Launch:
    """mpirun with a `program` for every rank, on the lead. `given`: variables from the agent. Raises MissingProgram,
    and UsageError for arguments that mpirun cannot hand on."""
    mpi = usable_mpi(context)
    alone = len(context.plan.peers) == 1
    hostfile = context.hostfile_one_per_node if ranks.per_pod == 1 else context.hostfile
    given = {**run_variables(context), **why_variables(context), **_libraries(context, mpi), **given}
    if context.keep_ranks:
        keep = shipped("entrypoints", "last-words.py")
        program = [context.python, "-IS", keep, context.ranks_output, *program]
    check_length(program[1:])
    launch = mpirun_launch(
        version=mpi.version,
        mpirun=mpi.program,
        hostfile=None if alone else hostfile,
        hosts=len(context.plan.peers),
        ranks=ranks.ranks,
        interface=context.interface,
        ssh_command=["ssh", "-F", context.ssh_config],
        daemon_starter=["sh", context.enter_script, context.run_dir],
        program=program,
        env={**context.environ, **given},
        cwd=cwd,
        oversubscribed=min(ranks.per_pod, ranks.ranks) > context.cores,
        options=context.spec.mpi,
    )
    return launch._replace(added=tuple(given))


def check_length(words: Sequence[str]) -> None:
    """Raises UsageError for arguments that mpirun cannot hand on."""
    size = len(" ".join(words).encode(errors="surrogateescape"))
    if size > MOST_ARGUMENTS:
        what = f"the program's arguments take {size} bytes: mpirun can give a rank {MOST_ARGUMENTS}"
        raise UsageError(what, "put them into a file that the program reads")


def _libraries(context: RunContext, mpi: Mpi) -> dict[str, str]:
    """The libraries of an Open MPI that is not the system's come first on every pod.

    mpirun sees to that on its own pod alone: others would load the libmpi that they find, of another version.
    """
    prefix, found, _ = mpi.program.rpartition("/bin/")
    name = "LD_LIBRARY_PATH"
    return {name: prepended(name, f"{prefix}/lib", context.environ.get(name, ""))} if found and prefix != "/usr" else {}


def recorded(context: RunContext) -> dict[str, str]:
    """Variables with which entrypoints/rank.sh starts each rank and records how it ends. Raises MissingProgram."""
    given = {"A4_RANKS_DIR": context.ranks_dir, "A4_RANKS_PATH": context.environ.get("PATH", "")}
    # Open MPI 5.0.11, three pods on two busy cores: 29 of 40 runs lost some of the 1 MB that they printed, 14 with
    # 0.1 s after the last line, 2 with 0.3 s, none with 0.5 s. And 8 of 52 runs of `true` hung, of 252 with 0.1 s none.
    return given | ({"A4_RANKS_LINGER": "0.5"} if usable_mpi(context).version.major >= 5 else {})


def recorded_ends(context: RunContext, outcome: Outcome, layout: Layout) -> RanksVerdict:
    """What became of all planned ranks, by what entrypoints/rank.sh recorded."""
    peers = context.plan.peers
    return ranks_verdict(outcome.ranks, layout.ranks, lambda rank: peers[layout.pod(rank)].index, outcome.lost)


def told_by_mpirun(mpi: Mpi, outcome: Outcome, *, started: bool, finished: str = "") -> MpirunEnd:
    """What mpirun says of the end. `started`: ranks are known to have run; `finished`: the sentence for an mpirun that
    hung without having said anything."""
    if outcome.stuck:
        code, sentence = reported_end(outcome.output, outcome.ranks) or (0, finished)
        return MpirunEnd(code, f"{sentence} (mpirun {mpi.version} hung after that and was ended)", of_rank=True)
    return mpirun_end(mpi.version, outcome.status, outcome.output, started=started, ranks=outcome.ranks)


def place_of_lost(context: RunContext, output: str) -> str:
    """The pod whose daemon mpirun says it has lost; empty when it does not say."""
    place, host = lost_daemon(output)
    peers = context.plan.peers[place : place + 1] if place else ()
    found = peers or [peer for peer in context.plan.peers if host and host in (*peer.names, peer.node)]
    return context.where(found[0].index) if len(found) == 1 else ""


def end_of_ranks(context: RunContext, program: str, outcome: Outcome, ranks: RanksVerdict) -> JobEnd:
    """How an MPI run ended. The first of these that applies: every rank ended well, untold; the run was ended; pods
    were lost; mpirun was killed; what mpirun says of its daemons; the ranks' records of failures; mpirun's status.

    What is printed may be a rank's own words: it says nothing against an mpirun that ended 0 with all ranks."""
    told = told_by_mpirun(usable_mpi(context), outcome, started=ranks.started)
    if ranks.complete and not outcome.told and (not told.code or (outcome.status == 0 and not outcome.stuck)):
        return JobEnd(0, f"{program} done", origin="workload")
    if outcome.cause is not None:
        return outcome.cause._replace(why=lines(outcome.cause.why, ranks.text if ranks.started else ""))
    if outcome.lost:
        why = lines(context.losses(outcome.lost), ranks.text)
        return JobEnd(Exit.TRY_AGAIN, "pods were lost during the run", why=why)
    if outcome.status < 0 and not outcome.stuck and ranks.code in (0, *FOLLOWED):
        what = f"mpirun was killed by {signal_name(-outcome.status)}"  # its ranks went with it
        return JobEnd(exit_code(outcome.status), what, why=ranks.text)
    # Then no daemon was lost: ranks may print what they like.
    failed_alone = ranks.code and (outcome.status == ranks.code or (ranks.ended and ranks.code not in FOLLOWED))
    if told.code == Exit.TRY_AGAIN and not told.of_rank and not failed_alone:
        return JobEnd(told.code, told.sentence, place_of_lost(context, outcome.output), ranks.text)
    if ranks.refused:
        return JobEnd(Exit.MISSING_PROGRAM, f"{program} cannot be started", why=ranks.text)
    if ranks.code in FOLLOWED and not ranks.ended and told.of_rank and told.code not in (0, *FOLLOWED):
        # The first was killed with its shell, and could record nothing.
        return JobEnd(told.code, told.sentence, why=ranks.text, origin="workload")
    if ranks.code:
        where = "" if ranks.pod is None else context.where(ranks.pod)
        hint = f"{ranks.code} is its own code; often something that it starts is missing or cannot be executed"
        hint = hint if ranks.code in (126, 127) else ""
        why = lines(hint, ranks.text.partition("\n")[2])
        return JobEnd(ranks.code, f"{program}: {ranks.what}", where, why, origin="workload")
    if told.code:
        return JobEnd(told.code, told.sentence, why=ranks.text, origin="workload" if told.of_rank else "agent")
    what = "ranks are missing, and nothing else explains it"
    return JobEnd(Exit.WRONG_RESULT, what, why=lines(told.sentence, ranks.text))
