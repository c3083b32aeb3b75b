"""What the verbs of `a4-agent local` do."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from agent.catalogue import RUNNABLE
from agent.commands import VERBS
from agent.commands.answers import VERSION, ClusterAnswer, ClustersAnswer, PodAnswer, write
from agent.commands.dry_run import answer, environment_before, launches
from agent.commands.state_text import describe
from agent.decide.facts import Facts
from agent.decide.order import make_plan
from agent.decide.plan import Plan
from agent.decide.pod_state import PodState
from agent.decide.runspec import RunSpec
from agent.decide.subset import grouped, pods_text
from agent.decide.words import did_you_mean
from agent.errors import AgentError, PeersMissing, UsageError
from agent.machine.api import Interface
from agent.machine.progress_line import ProgressLine
from agent.output import STDERR, STDOUT, Lines
from agent.paths import RunDir
from agent.settings import BUCKET, TASK_SCRIPTS, Found, read_settings
from agent.wire import from_json
from agent.workbench.local import DEFAULT_NAME
from agent.workbench.local.access import read_output
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.copying import copy
from agent.workbench.local.foreground import run_in_foreground
from agent.workbench.local.host_survey import check_machine
from agent.workbench.local.podenv import ClusterBuild, pod_environment
from agent.workbench.local.pods import ABSENT, ENDED, PodInfo
from agent.workbench.local.progress import ClusterProgress
from agent.workbench.local.run_report import run_directory
from agent.workbench.local.sockets import running_clusters
from agent.workbench.local.spec import NIC, ClusterSpec, NameFault, address, check
from agent.workbench.local.terminal import run_on_terminal, run_plain

PRIVATE = ("/tmp/", "/run/", "/mnt/")
"""Where pods have directories of their own."""


def read_spec(args: argparse.Namespace, env: dict[str, str]) -> ClusterSpec:
    """The cluster that the command line describes."""
    if args.workload and args.workload not in RUNNABLE:  # said once here, instead of by every pod
        meant = did_you_mean(args.workload, RUNNABLE)
        if not meant and args.local_verb == "up":
            meant = f"; for a cluster of that name type --name {args.workload}"
        hint = f"there are: {', '.join(RUNNABLE)}"
        if args.workload in VERBS:
            hint = f"a4-agent local up --wait, and then: a4-agent local exec 0 -- a4-agent {args.workload} …"
        raise UsageError(f"there is no workload {args.workload!r}{meant}", hint)
    pod_env: dict[int, dict[str, str]] = {}
    for index, (name, value) in args.pod_env:
        pod_env.setdefault(index, {})[name] = value
    labels = {"--name": args.run_name, "--note": args.note}
    words = [f"{option}={text}" for option, text in labels.items() if text]
    words += [args.workload] if args.workload else []
    return ClusterSpec(
        pods=args.pods,
        gpus_per_pod=args.gpus_per_pod,
        name=args.name,
        arguments=(*words, *(["--", *args.rest] if args.rest else [])),
        env=env | dict(args.env),
        pod_env=pod_env,
        files=_task_script(args.task_script),
        directories=dict(args.mount),
        devices=tuple(args.device),
        real_gpus=args.real_gpus,
        data_nic=args.data_nic,
        ssh_port=args.port,
        pod_secret={index: os.urandom(32) for index in args.other_secret},
        late=dict(args.late),
        missing=frozenset(args.missing),
        dead=frozenset(args.dead),
        late_names=dict(args.late_name),
        metadata=next((mode for index, mode in args.metadata if index is None), "ok"),
        pod_metadata={index: mode for index, mode in args.metadata if index is not None},
        slow_bashrc=args.slow_bashrc,
        lives=args.lives,
        replace_after=args.replace_after,
        replaced_name=NameFault(*args.replaced_name),
    )


def _task_script(path: str) -> dict[str, bytes]:
    """The user's script where the chart would mount it."""
    if not path:
        return {}
    try:
        with open(path, "rb") as file:
            return {TASK_SCRIPTS[0]: file.read()}
    except OSError as error:
        raise UsageError(f"--task-script {path} cannot be read: {error.strerror}") from error


def _run(args: argparse.Namespace) -> int:
    """The exit code is that of the job. Raises AgentError."""
    spec = read_spec(args, {"A4_GRACE_SECONDS": f"{args.grace:g}"})
    if args.dry_run:
        return _show(spec, args.workload, args.rest, as_json=args.json)
    results = "" if args.results is None else _new_directory(args.results, args.name)
    if results:
        # At the same path: what the pods say of it is true here.
        given = {"A4_RESULTS_DIR": results}
        spec = replace(spec, env={**given, **spec.env}, directories={**spec.directories, results: results})
    _end_what_has_ended(args.name)
    shown = {"as_json": args.json, "all_pods": args.all_pods, "details": args.details}
    return run_in_foreground(spec, timeout=args.timeout, grace=args.grace, **shown, results=results)


def _show(spec: ClusterSpec, workload: str, args: list[str], *, as_json: bool) -> int:
    """Print what would be started in the pods of a cluster that is not made. Raises AgentError as the run would."""
    check(spec)
    job = ClusterBuild(uid="JOBSET-UID", stamp="TIME", path=os.environ.get("PATH", os.defpath))
    environ = pod_environment(spec, job, 0)
    script = next((path for path in TASK_SCRIPTS if path in spec.files), "")
    settings, _ = read_settings(environ, Found(script, bucket=BUCKET in spec.directories), workload)
    known = environment_before(settings, environ, [Interface(nic.name, address(0, nic)) for nic in spec.nics])
    wish = RunSpec(settings.workload, tuple(args))
    # The one that the pods would make, if all of them came.
    plan = make_plan(
        [_facts(spec, index) for index in range(spec.pods)],
        epoch=settings.epoch,
        prefix=settings.hostname_prefix,
        domain=settings.domain_name,
        slots=settings.gpus_per_node,
    )
    answer(launches(settings, known, wish, plan), environ, wish, as_json=as_json)
    return 0


def _facts(spec: ClusterSpec, index: int) -> Facts:
    located = spec.pod_metadata.get(index, spec.metadata) == "ok"
    places = {"physical_host_topology": spec.place(index)} if located else {}
    node, own = spec.node_name(index), address(index)
    return Facts(index, "", "", node, own, NIC.name, spec.gpus_per_pod, places=places)


def _new_directory(parent: str, name: str) -> str:
    """Make a directory for the results of one run; returns its absolute path. Raises UsageError."""
    if not parent:
        raise UsageError("--results needs the name of a directory", "is a variable of this shell empty?")
    path = os.path.join(os.path.abspath(parent), f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        os.makedirs(path)
    except OSError as error:
        raise UsageError(f"--results {parent}: {path} cannot be made: {error.strerror}") from error
    return path


def _up(args: argparse.Namespace) -> int:
    """Start a cluster that stays, and say how to go on. Raises PeersMissing when it has not formed in time."""
    cluster = LocalCluster(read_spec(args, {"SLEEP_INFINITY": "true"}))
    _end_what_has_ended(args.name)
    pods = cluster.start(detached=True)
    if args.wait:
        path = f"{run_directory(cluster.spec, 0)}/plan.json"
        try:
            with ProgressLine(ClusterProgress(cluster).text):
                cluster.wait_for_file(path, args.timeout)
        except TimeoutError as error:
            what = f"the cluster was not formed within {args.timeout:g} s; it is still forming"
            raise PeersMissing(what, f"why: a4-agent local exec 0 --name {args.name} -- a4-agent status") from error
    running = sum(pod.state == "running" for pod in pods)
    print(f"{running} of {args.pods} pods of the local cluster {args.name} run. Continue with:")
    named = "" if args.name == DEFAULT_NAME else f" --name {args.name}"
    for words in ("status", "exec 0", "logs -f", "down"):
        print(f"  a4-agent local {words}{named}")
    return 0


def _end_what_has_ended(name: str) -> None:
    """A cluster of this name whose pods have all ended gives way."""
    with suppress(AgentError):
        old = LocalCluster.attach(name)
        if all(pod.state in (ENDED, ABSENT) for pod in old.pods()):
            old.quit()


def _attach(name: str | None) -> LocalCluster:
    """The cluster that runs under this name. Raises UsageError when there is none, SystemFault without root."""
    check_machine()
    return LocalCluster.attach(name or "")


def _exec(args: argparse.Namespace) -> int:
    """The exit code is that of the command. It gets a terminal where this process has one."""
    cluster = _attach(args.name)
    argv: Sequence[str] = [*args.command, *args.rest] or ["bash"]
    is_terminal = os.isatty(0) and os.isatty(1)
    on_terminal = args.tty == "yes" or (args.tty == "auto" and is_terminal)
    pod = cluster.index_of(args.pod)
    code = (run_on_terminal if on_terminal else run_plain)(cluster, pod, argv)
    if code:
        _tell_what_is_only_here(cluster, pod, argv)
    return code


def _tell_what_is_only_here(cluster: LocalCluster, pod: int, argv: Sequence[str]) -> None:
    """A command that failed may have been given a path of this machine that pods do not see."""
    for path in argv:
        if path.startswith(PRIVATE) and os.path.exists(path):
            with suppress(AgentError):
                if cluster.exec(pod, ["test", "-e", path]).returncode == 1:
                    what = f"{path} is on this machine and not in the pod, which has /tmp, /run and /mnt of its own"
                    print(f"a4-agent: {what}\n  local up --mount DIR shares a directory", file=sys.stderr)


def _copy(args: argparse.Namespace) -> int:
    copy(_attach(args.name), args.source, args.target)
    return 0


def _logs(args: argparse.Namespace) -> int:
    lines = Lines(label=args.pod is None, whole=False, stderr=STDOUT)
    cluster = _attach(args.name)
    pod = None if args.pod is None else cluster.index_of(args.pod)
    for output in read_output(cluster.name, pod, follow=args.follow, idle=lines.idle):
        lines.output(output.pod, STDERR if output.stream == "err" else STDOUT, output.data)
    lines.close()
    return 0


def _down(args: argparse.Namespace) -> int:
    """End the cluster and print how each pod ended."""
    cluster = _attach(args.name)
    pods = cluster.terminate(args.grace)
    cluster.quit()
    for pod in pods:
        print(f"pod {pod.index}: {'never started' if pod.code is None else f'exit code {pod.code}'}")
    return 0


def _status(args: argparse.Namespace) -> int:
    """Print which pods run, how the others ended, and what the agent of pod 0 says of the cluster."""
    cluster = _attach(args.name)
    pods = cluster.pods()
    if args.json:
        said = {pod.index: PodAnswer(pod.name, pod.node, pod.state, pod.code) for pod in pods}
        write(ClusterAnswer(VERSION, cluster.name, said))
        return 0
    print(f"local cluster {cluster.name}: {_in_words(_count_states(pods))}")
    for code, alike in grouped({pod.index: pod.code for pod in pods if pod.code is not None}).items():
        print(f"  {pods_text(alike)}: exit code {code}")
    for times, alike in grouped({pod.index: pod.replaced for pod in pods if pod.replaced}).items():
        print(f"  {pods_text(alike)}: replaced {'once' if times == 1 else f'{times} times'}")
    sys.stdout.write(_of_agent(cluster, ended=pods[0].state == "ended"))
    return 0


def _list(args: argparse.Namespace) -> int:
    """Print the clusters that answer; one that ends meanwhile is left out."""
    check_machine()
    found: dict[str, dict[str, int]] = {}
    for name in running_clusters():
        try:
            found[name] = _count_states(LocalCluster.attach(name).pods())
        except AgentError:
            continue  # it has ended meanwhile
    if args.json:
        write(ClustersAnswer(VERSION, found))
    else:
        for name, counts in found.items():
            print(f"{name}: {_in_words(counts)}")
    return 0


def _count_states(pods: Sequence[PodInfo]) -> dict[str, int]:
    """How many pods are in which state."""
    return dict(sorted(Counter(pod.state for pod in pods).items()))


def _in_words(counts: Mapping[str, int]) -> str:
    """3 running, 1 ended"""
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _of_agent(cluster: LocalCluster, *, ended: bool) -> str:
    """What the agent of pod 0 last wrote of itself, which is there when the pod has ended, too."""
    directory = RunDir(run_directory(cluster.spec, 0))
    files = cluster.read_bytes(0, [directory.state, directory.plan])
    state, plan = files[directory.state], files[directory.plan]
    if state is None:
        return "pod 0 has no agent yet\n"
    known, last = Plan.from_json(json.loads(plan)) if plan else None, from_json(PodState, json.loads(state))
    killed = "what the agent of pod 0 wrote before it was killed:\n" if ended and last.phase != "ended" else ""
    return killed + describe(last, known, 0.0, time.time())


ACTS = {
    "run": _run,
    "up": _up,
    "exec": _exec,
    "cp": _copy,
    "logs": _logs,
    "down": _down,
    "status": _status,
    "list": _list,
}
