"""a4-agent local: a cluster of pod-like sandboxes on this machine."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.catalogue import RUNNABLE
from agent.commands import Parser
from agent.commands.local_values import by_pod, cluster_name, directory, metadata, pair
from agent.commands.options import checked
from agent.decide.setting_values import none_or
from agent.decide.words import did_you_mean
from agent.errors import AgentError, UsageError
from agent.local import DEFAULT_NAME
from agent.settings import TASK_SCRIPTS

if TYPE_CHECKING:
    from agent.local.client import LocalCluster
    from agent.local.spec import ClusterSpec

DESCRIPTION = "try the agent in pod-like sandboxes on this machine (needs root)"
PRIVATE = ("/tmp/", "/run/", "/mnt/")
"""Where pods have directories of their own."""
RESULTS = "/results"
"""Where pods see the directory of --results."""

_RUN_EPILOG = """\
examples:
  a4-agent local run --pods 4 connectivity
  a4-agent local run --pods 4 --late 2:5 --missing 3 --env A4_PEER_TIMEOUT_SECONDS=10 connectivity
  a4-agent local run --pods 2 --gpus-per-pod 2 --metadata stall none
"""


class _SplitParser(Parser):
    """Keeps what follows `--` apart: argparse loses it when options stand between it and the verb."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args if args is not None else sys.argv[1:])
        at = words.index("--") if "--" in words else len(words)
        found, unknown = super().parse_known_args(words[:at], namespace)
        found.rest = words[at + 1 :]
        return found, unknown


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="local_verb", metavar="VERB", required=True, parser_class=_SplitParser)
    run = _add_verb(verbs, "run", _run, "run a workload on a new cluster, end with its exit code")
    run.epilog, run.formatter_class = _RUN_EPILOG, argparse.RawDescriptionHelpFormatter
    _add_cluster_options(run)
    run.add_argument(
        "--timeout", type=checked(none_or("600", 0)), default=0, metavar="SECONDS", help="end the run (124) after this"
    )
    _add_grace(run)
    text = "keep results and logs in a new directory below DIR"
    run.add_argument("--results", metavar="DIR", help=text)
    text = "show the output of all pods, with their index in front (default: pod 0's stdout and all pods' stderr)"
    run.add_argument("--all-pods", action="store_true", help=text)
    run.add_argument("--json", action="store_true", help="one JSON object on stdout; pods' output on stderr")
    text = "print what would be started in the pods, and make no cluster"
    run.add_argument("--dry-run", action="store_true", help=text)
    up = _add_verb(verbs, "up", _up, "start a cluster that stays, see exec, logs and down")
    _add_cluster_options(up)
    up.add_argument("--wait", action="store_true", help="return when every pod has the plan")
    up.add_argument(
        "--timeout", type=checked(none_or("600", 0)), default=600, metavar="SECONDS", help="limit of --wait (600)"
    )
    _add_exec(verbs)
    logs = _add_verb(verbs, "logs", _logs, "print what pods have printed")
    logs.add_argument("pod", nargs="?", type=int, help="only this pod; else all, with their index in front")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the pods have ended")
    _add_name(logs)
    down = _add_verb(verbs, "down", _down, "end a cluster: SIGTERM, after the grace time SIGKILL")
    _add_grace(down)
    _add_name(down)
    _add_name(_add_verb(verbs, "status", _status, "print which pods run, and what the agent of pod 0 says"))
    listing = _add_verb(verbs, "list", _list, "print the clusters that run")
    listing.add_argument("--json", action="store_true", help="the same as JSON")


def _add_verb(verbs: Any, name: str, act: Callable[[Any], int], text: str) -> argparse.ArgumentParser:
    """A verb of `local`, with what all of them have."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    parser.set_defaults(act=act, rest=[])
    return parser


def _add_name(parser: argparse.ArgumentParser) -> None:
    text = f"name of the cluster (default: {DEFAULT_NAME}, or the only one that runs)"
    parser.add_argument("--name", type=cluster_name, help=text)


def _add_grace(parser: argparse.ArgumentParser) -> None:
    text = "from SIGTERM to SIGKILL (30)"
    parser.add_argument("--grace", type=checked(none_or("30", 0)), default=30.0, metavar="SECONDS", help=text)


def _add_exec(verbs: Any) -> None:
    """A command may stand after `--` or without it, as kubectl exec takes it."""
    parser = _add_verb(verbs, "exec", _exec, "run a command in a pod: exec POD -- COMMAND …")
    parser.add_argument("pod", type=int)
    parser.add_argument("command", nargs="*", help="default: bash")
    parser.add_argument("--tty", choices=("auto", "yes", "no"), default="auto", help="give it a terminal")
    _add_name(parser)


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """What a cluster is, and what goes wrong in it on purpose."""
    add = parser.add_argument
    add("workload", nargs="?", default="", help="as in: a4-agent run WORKLOAD [-- ARGS]")
    add("--pods", type=int, required=True, metavar="N", help="number of pods")
    add("--gpus-per-pod", type=int, default=8, metavar="G", help="GPUs that each pod has, or believes to have (8)")
    text = "share out this machine's GPUs: pod 0 has the first G, pod 1 the next G; without it, GPUs are only believed"
    add("--real-gpus", action="store_true", help=text)
    add("--name", type=cluster_name, default=DEFAULT_NAME, help=f"name of the cluster ({DEFAULT_NAME})")
    add("--port", type=int, default=2222, help="port of the pods' SSH daemon (2222)")
    add("--env", action="append", default=[], metavar="NAME=VALUE", type=pair("=", str))
    pod_env = by_pod(pair("=", str))
    text = "for pod I alone"
    add("--pod-env", action="append", default=[], metavar="I:NAME=VALUE", type=pod_env, help=text)
    text = "a task script that every pod finds mounted, for the workload `script`"
    add("--task-script", default="", metavar="FILE", help=text)
    text = "a directory of this machine that all pods share, at the same path or at PATH"
    add("--mount", action="append", default=[], metavar="DIR[:PATH]", type=directory, help=text)
    add("--device", action="append", default=[], metavar="PATH", help="a device file that pods get, too")
    faults = parser.add_argument_group("faults", "I is the index of a pod; all may be given several times")
    fault = faults.add_argument
    seconds = by_pod(float)
    fault("--late", action="append", default=[], metavar="I:SECONDS", type=seconds, help="starts later")
    text = "never comes, has no DNS name"
    fault("--missing", action="append", default=[], metavar="I", type=int, help=text)
    text = "never comes, its address answers nothing"
    fault("--dead", action="append", default=[], metavar="I", type=int, help=text)
    text = "its DNS name comes so much later than itself"
    fault("--late-name", action="append", default=[], metavar="I:SECONDS", type=seconds, help=text)
    text = "has another job secret"
    fault("--other-secret", action="append", default=[], metavar="I", type=int, help=text)
    text = "how the metadata server behaves: ok, 404, 503, html, stall (never answers), no-header"
    fault("--metadata", action="append", default=[], metavar="[I:]MODE", type=metadata, help=text)
    text = "root's .bashrc takes so long, and prints"
    fault("--slow-bashrc", type=float, default=0, metavar="SECONDS", help=text)


def run(args: argparse.Namespace) -> int:
    """The exit code that the verb of `local` gives. Raises AgentError."""
    code: int = args.act(args)
    return code


def read_spec(args: argparse.Namespace, env: dict[str, str]) -> ClusterSpec:
    """The cluster that the command line describes."""
    from agent.local.spec import ClusterSpec

    if args.workload and args.workload not in RUNNABLE:  # said once here, instead of by every pod
        what = f"there is no workload {args.workload!r}{did_you_mean(args.workload, RUNNABLE)}"
        raise UsageError(what, f"there are: {', '.join(RUNNABLE)}")
    pod_env: dict[int, dict[str, str]] = {}
    for index, (name, value) in args.pod_env:
        pod_env.setdefault(index, {})[name] = value
    words = [args.workload] if args.workload else []
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
        ssh_port=args.port,
        pod_secret={index: os.urandom(32) for index in args.other_secret},
        late=dict(args.late),
        missing=frozenset(args.missing),
        dead=frozenset(args.dead),
        late_names=dict(args.late_name),
        metadata=next((mode for index, mode in args.metadata if index is None), "ok"),
        pod_metadata={index: mode for index, mode in args.metadata if index is not None},
        slow_bashrc=args.slow_bashrc,
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
        from agent.local.dry_run import show

        return show(spec, args.workload, args.rest, as_json=args.json)
    results = "" if args.results is None else _new_directory(args.results, args.name)
    if results:
        given = {"A4_RESULTS_DIR": RESULTS}
        spec = replace(spec, env={**given, **spec.env}, directories={**spec.directories, RESULTS: results})
    from agent.local.foreground import run_in_foreground

    _end_what_has_ended(args.name)
    return run_in_foreground(
        spec, timeout=args.timeout, grace=args.grace, as_json=args.json, all_pods=args.all_pods, results=results
    )


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
    from agent.errors import PeersMissing
    from agent.local.client import LocalCluster
    from agent.local.progress import ClusterProgress
    from agent.local.run_report import run_directory
    from agent.machine.progress_line import ProgressLine

    cluster = LocalCluster(read_spec(args, {"SLEEP_INFINITY": "true"}))
    _end_what_has_ended(args.name)
    pods = cluster.start(detached=True)
    if args.wait:
        path = f"{run_directory(cluster.spec, 0)}/plan.json"
        try:
            with ProgressLine(ClusterProgress(cluster).text):
                cluster.wait_for_file(path, args.timeout)
        except TimeoutError as error:
            what = f"the cluster was not formed within {args.timeout:g} s; it goes on"
            raise PeersMissing(what, f"why: a4-agent local exec 0 --name {args.name} -- a4-agent status") from error
    running = sum(pod.state == "running" for pod in pods)
    print(f"{running} of {args.pods} pods of the local cluster {args.name} run. Go on with:")
    named = "" if args.name == DEFAULT_NAME else f" --name {args.name}"
    for words in ("status", "exec 0", "logs -f", "down"):
        print(f"  a4-agent local {words}{named}")
    return 0


def _end_what_has_ended(name: str) -> None:
    """A cluster of this name whose pods have all ended gives way."""
    from agent.local.client import LocalCluster
    from agent.local.pods import ABSENT, ENDED

    with suppress(AgentError):
        old = LocalCluster.attach(name)
        if all(pod.state in (ENDED, ABSENT) for pod in old.pods()):
            old.quit()


def _attach(name: str | None) -> LocalCluster:
    """The cluster that runs under this name. Raises UsageError when there is none, SystemFault without root."""
    from agent.local.client import LocalCluster
    from agent.local.host_survey import check_machine

    check_machine()
    return LocalCluster.attach(name or "")


def _exec(args: argparse.Namespace) -> int:
    """The exit code is that of the command. It gets a terminal where this process has one."""
    from agent.local.terminal import run_on_terminal, run_plain

    cluster = _attach(args.name)
    argv: Sequence[str] = [*args.command, *args.rest] or ["bash"]
    is_terminal = os.isatty(0) and os.isatty(1)
    on_terminal = args.tty == "yes" or (args.tty == "auto" and is_terminal)
    code = (run_on_terminal if on_terminal else run_plain)(cluster, args.pod, argv)
    if code:
        _tell_what_is_only_here(cluster, args.pod, argv)
    return code


def _tell_what_is_only_here(cluster: LocalCluster, pod: int, argv: Sequence[str]) -> None:
    """A command that failed may have been given a path of this machine that pods do not see."""
    for path in argv:
        if path.startswith(PRIVATE) and os.path.exists(path):
            with suppress(AgentError):
                if cluster.exec(pod, ["test", "-e", path]).returncode == 1:
                    what = f"{path} is on this machine and not in the pod, which has /tmp, /run and /mnt of its own"
                    print(f"a4-agent: {what}\n  local up --mount DIR shares a directory", file=sys.stderr)


def _logs(args: argparse.Namespace) -> int:
    from agent.output import STDERR, STDOUT, Lines

    lines = Lines(label=args.pod is None, whole=False, stderr=STDOUT)
    for output in _attach(args.name).output(args.pod, follow=args.follow):
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
    from agent.commands.local_status import describe_cluster

    sys.stdout.write(describe_cluster(_attach(args.name)))
    return 0


def _list(args: argparse.Namespace) -> int:
    """Print the clusters that answer; one that ends meanwhile is left out."""
    from agent.commands.local_status import count_states, in_words
    from agent.local.client import LocalCluster
    from agent.local.host_survey import check_machine
    from agent.local.sockets import running_clusters

    check_machine()
    found: dict[str, dict[str, int]] = {}
    for name in running_clusters():
        try:
            found[name] = count_states(LocalCluster.attach(name).pods())
        except AgentError:
            continue  # it has ended meanwhile
    if args.json:
        from agent.commands.answers import VERSION, ClustersAnswer, write

        write(ClustersAnswer(VERSION, found))
    else:
        for name, counts in found.items():
            print(f"{name}: {in_words(counts)}")
    return 0
