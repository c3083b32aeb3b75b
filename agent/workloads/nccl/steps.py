"""What an nccl run starts: a look at the programs, the connectivity test, and the tests one after the other."""

from __future__ import annotations

from dataclasses import replace

from agent.decide.mpi_environment import rank_environment
from agent.errors import SettingsError, UsageError
from agent.fabrics import FABRICS
from agent.launch import Launch
from agent.paths import shipped
from agent.workloads.base import RunContext, run_variables
from agent.workloads.connectivity import Connectivity
from agent.workloads.mpi import Layout, recorded, start
from agent.workloads.nccl import baselines
from agent.workloads.nccl.baselines import KnownBaseline
from agent.workloads.nccl.notes import CONNECTIVITY
from agent.workloads.nccl.options import NcclOptions
from agent.workloads.nccl_logs import log_variables
from agent.workloads.network import not_used
from agent.workloads.step_launch import Step

PROGRAMS = "programs"
PLACES = ("/third_party/nccl-tests/build", "/third_party/nccl-tests-mpi/build")
"""Where the images of gIB and of TCPX have them."""
ENDS = "# Avg bus bandwidth"


def known_baselines(context: RunContext) -> list[KnownBaseline]:
    """The shipped baselines, then the user's. Raises SettingsError for a file that cannot be used."""
    found: list[KnownBaseline] = []
    for path, text in context.baselines.items():
        try:
            found += baselines.parse_file(text)
        except ValueError as error:
            problem = f"it is empty or cannot be read on {context.where(context.index)}" if not text else str(error)
            raise SettingsError([f"A4_BASELINES={path}: {problem}"]) from None
    return found


def first_steps(context: RunContext, options: NcclOptions) -> list[Step]:
    """Is all there that is needed, and do the ranks reach each other?"""
    told = Connectivity().launch(replace(context, spec=context.spec._replace(args=())))
    assert told is not None
    record = f"{context.notes_dir}/{CONNECTIVITY}.jsonl"
    connectivity = told._replace(env={**told.env, "A4_RECORD": record})
    look = ["sh", shipped("entrypoints", "nccl-test.sh"), "--find", *options.tests]
    # All steps have this environment as their base: what would change mpirun must not be in it.
    given = {**run_variables(context), **_given(context)}
    programs = Launch(look, {**rank_environment(context.environ), **given}, "/", added=list(given))
    return [Step([PROGRAMS], programs), Step([CONNECTIVITY], connectivity, record=record)]


def test_steps(context: RunContext, options: NcclOptions) -> list[Step]:
    steps = []
    fabric = FABRICS.get(context.profile)
    pinned = ["taskset", "-c", fabric.nccl_cores] if fabric and fabric.nccl_cores else []
    result = f"{context.notes_dir}/{{step}}.json"
    for test in options.tests:
        names = [step for step, of_test in step_names(options) if of_test == test]
        program = ["sh", context.rank_script, "sh", shipped("entrypoints", "nccl-test.sh"), test, context.notes_dir]
        ranks, given = processes(context, options), {**_given(context), "A4_STEP": test}
        launch = start(context, [*pinned, *program, *options.arguments], ranks, given=given, cwd="/")
        steps.append(Step(names, launch, ENDS, result=result, ranks=context.ranks_dir))
    return steps


def processes(context: RunContext, options: NcclOptions) -> Layout:
    """A process for each GPU, or one for all of a pod (-g 8). Raises UsageError for what is neither."""
    slots, pods = context.plan.slots, len(context.plan.peers)
    if options.width not in (1, slots):
        what = f"-t and -g: a process has 1 GPU or all {slots} of its pod, not {options.width}"
        raise UsageError(what)
    per_pod = slots // options.width
    return Layout(per_pod * pods, per_pod)


def step_names(options: NcclOptions) -> list[tuple[str, str]]:
    """(step, test), in their order."""
    return [
        (test if run == 1 else f"{test}-{run}", test) for test in options.tests for run in range(1, options.repeat + 1)
    ]


def _given(context: RunContext) -> dict[str, str]:
    """NCCL has one place for what it says: a file of each rank, so that the table stays a table."""
    found = {"A4_NCCL_TESTS_PATH": ":".join(places(context))}
    return {**recorded(context), **found, **log_variables(context.environ)}


def places(context: RunContext) -> list[str]:
    own = context.environ.get("A4_NCCL_TESTS_DIR", "").rstrip("/")
    return [*([own, f"{own}/build"] if own else []), *PLACES]


def notes(context: RunContext, options: NcclOptions) -> list[str]:
    notes = []
    if options.iterations is not None and options.iterations < baselines.LEAST_ITERATIONS:
        notes.append(f"-n {options.iterations}: so few iterations measure nothing, the speed will not be judged")
    if options.json_elsewhere:
        notes.append("-J: nccl-tests writes its whole environment into that file, secrets too")
    return [*notes, *not_used(context)]
