"""The control plane with nodes: releases of the chart become pods that run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from agent.wire import to_json
from tests.chart.helm import CHART, HELM, ROOT
from tests.kubernetes.control_plane import ASK_SECONDS, FILES, KUBECONFIG, MASTER, ControlPlane, Refused
from tests.kubernetes.controllers import Object
from tests.kubernetes.kubelet.orders import Config
from tests.kubernetes.nodes import IMAGE, images, node, places

SMALL = {
    "workload.image": IMAGE,
    "workload.gpusPerNode": "2",
    "network.gibVersion": "",
    "network.profile": "none",
    "workload.resources.requests.cpu": "1",
    "volumes.sharedMemory": "1Gi",
}
"""Two GPUs that are not there in each pod, and no fabric."""
SLEEPS = "the cluster stays"
"""What pod 0 logs when its job is over and the pods stay."""
LONG_SECONDS = 600.0
"""Until something must have come about, on a machine that may be busy."""
LOOK_SECONDS = 0.3


class Bed:
    """Made by `with_nodes`."""

    def __init__(self, plane: ControlPlane, process: subprocess.Popen[str], errors: IO[bytes]) -> None:
        self.plane = plane
        self._process = process
        self._errors = errors

    def order(self, what: str, node: str) -> Object:
        """`die`, `freeze`, `thaw`, `reboot` or `look`; see the kubelet's `obey`."""
        return self.ask({"what": what, "node": node})

    def ask(self, question: Object) -> Object:
        """What the kubelet answers. Raises RuntimeError if it has ended."""
        assert self._process.stdin and self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise self._lost()
        found: Object = json.loads(line)
        return found

    def helm(self, *words: str) -> str:
        """What it prints. Raises Refused with what it says."""
        env = {"KUBECONFIG": KUBECONFIG}
        argv = [str(HELM), *words]
        done = self.plane.cluster.exec(MASTER, argv, env=env, timeout=LONG_SECONDS)
        if done.returncode:
            raise Refused(f"{done.stderr}{done.stdout}")
        return done.stdout

    def install(
        self, name: str, namespace: str, settings: Mapping[str, str], *words: str, chart: str = str(CHART)
    ) -> str:
        sets = [word for key, value in {**SMALL, **settings}.items() for word in ("--set-string", f"{key}={value}")]
        return self.helm("install", name, chart, "--namespace", namespace, *sets, *words)

    def get(self, kind: str, namespace: str, *words: str) -> list[Object]:
        text = self.plane.kubectl("get", kind, "--namespace", namespace, "--output=json", *words)
        found: list[Object] = json.loads(text)["items"]
        return found

    def until(self, what: str, look: Callable[[], Any], seconds: float = LONG_SECONDS) -> Any:
        """What `look` returns as soon as it is something. Raises TimeoutError with what the bed was doing."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {seconds:g} s still not: {what}\n{self.told()}")
            time.sleep(LOOK_SECONDS)
        return found

    def check(self) -> None:
        """Raises RuntimeError if the kubelet has ended."""
        if self._process.poll() is not None:
            raise self._lost()

    def ended(self, name: str, namespace: str) -> str:
        """The condition in which a JobSet ends: Completed or Failed."""

        def look() -> str:
            (found,) = self.get("jobset", namespace, f"--field-selector=metadata.name={name}")
            conditions = (found.get("status") or {}).get("conditions") or []
            true = [each["type"] for each in conditions if each["status"] == "True"]
            return next((each for each in true if each in ("Completed", "Failed")), "")

        return str(self.until(f"the end of {name}", look))

    def pods(self, name: str, namespace: str) -> list[Object]:
        """A JobSet's pods, in the order of their indices."""
        found = self.get("pods", namespace, f"--selector=jobset.sigs.k8s.io/jobset-name={name}")
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))

    def ready(self, name: str, namespace: str, count: int) -> list[Object]:
        """Its pods, as soon as so many are ready."""

        def look() -> list[Object]:
            found = [pod for pod in self.pods(name, namespace) if _is_ready(pod)]
            return found if len(found) == count else []

        found: list[Object] = self.until(f"{count} pods of {name} are ready", look)
        return found

    def formed(self, name: str, namespace: str, count: int) -> list[Object]:
        """Its pods, as soon as each has the plan of its cluster."""
        pods = self.ready(name, namespace, count)
        there = ("test", "-e", "/run/a4-agent/plan.json")
        names = [pod["metadata"]["name"] for pod in pods]
        self.until(
            f"{name} is formed",
            lambda: all(self.execute(namespace, each, *there).returncode == 0 for each in names),
        )
        return pods

    def until_asleep(self, namespace: str, pods: Sequence[Object]) -> None:
        """Until the first run of pods that stay is over."""
        first = pods[0]["metadata"]["name"]
        self.until(f"{first} sleeps", lambda: SLEEPS in self.log_of(namespace, first))

    def log_of(self, namespace: str, pod: str) -> str:
        return self.plane.kubectl("logs", "--namespace", namespace, pod, "--container=workload")

    @contextmanager
    def codes(self, namespace: str) -> Iterator[Callable[[], dict[str, int]]]:
        """With what the pods of a namespace end, by uid: also those whose objects go at once."""
        columns = "{.metadata.uid} {.status.containerStatuses[0].state.terminated.exitCode}"
        with self._watched(namespace, columns) as seen:
            self.until("the pods are watched", seen)
            yield lambda: {words[0]: int(words[1]) for words in seen() if len(words) == 2}

    @contextmanager
    def addresses(self, namespace: str) -> Iterator[Callable[[], dict[int, set[str]]]]:
        """The addresses that pods of each attempt of a namespace's jobs have had."""
        label = r"{.metadata.labels.jobset\.sigs\.k8s\.io/restart-attempt}"
        with self._watched(namespace, f"{label} {{.status.podIP}}") as seen:

            def found() -> dict[int, set[str]]:
                pairs = [words for words in seen() if len(words) == 2]
                return {int(one): {ip for attempt, ip in pairs if attempt == one} for one, _ in pairs}

            yield found

    @contextmanager
    def _watched(self, namespace: str, columns: str) -> Iterator[Callable[[], list[list[str]]]]:
        """The words of these columns, for each time that a pod was new or has changed."""
        seen = f"/run/watched-{namespace}"
        watch = f"exec {self.plane.programs.directory}/kubectl get pods --watch --namespace {namespace} --output"
        argv = ["sh", "-c", f"""{watch} 'jsonpath={columns}{{"\\n"}}' >{seen}"""]

        def lines() -> list[list[str]]:
            found = (self.plane.cluster.read_bytes(MASTER, [seen])[seen] or b"").decode()
            return [line.split() for line in found.splitlines(keepends=True)[:-1]]

        with self.plane.cluster.popen(MASTER, argv, env={"KUBECONFIG": KUBECONFIG}):
            yield lines

    def execute(self, namespace: str, pod: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.plane.run(MASTER, "kubectl", "exec", "--namespace", namespace, pod, "--", *words)

    def clear(self, namespace: str) -> None:
        """Delete all jobs, and their pods without grace."""
        for kind in ("jobsets", "jobs", "pods"):
            self.plane.kubectl("delete", kind, "--all", "--namespace", namespace, "--wait=false")
        everything = ("delete", "pods", "--all", "--namespace", namespace, "--force", "--grace-period=0")

        def gone() -> bool:
            self.plane.kubectl(*everything)
            return not self.get("pods", namespace)

        self.until("its pods are gone", gone)

    def told(self) -> str:
        """For a test that has failed."""
        pods = self.plane.kubectl("get", "jobsets,jobs,pods,nodes", "--all-namespaces", "--output=wide")
        events = self.plane.kubectl("get", "events", "--all-namespaces")
        return f"{pods}\n{events[-6000:]}\nkubelet:\n{self._said()[-6000:]}"

    def _lost(self) -> RuntimeError:
        return RuntimeError(f"the kubelet has ended: {self._said()[-4000:]}")

    def _said(self) -> str:
        """What the kubelet has complained about."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")


def terminated(pod: Object, container: str = "workload", kind: str = "containerStatuses") -> Object:
    """How a container of a pod has ended."""
    shown = pod["status"].get(kind) or ()
    ends: list[Object] = [each["state"].get("terminated") or {} for each in shown if each["name"] == container]
    return ends[0] if ends else {}


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@contextmanager
def with_nodes(plane: ControlPlane, names: Sequence[str] = ()) -> Iterator[Bed]:
    """Nodes join the control plane; they and their pods are gone afterwards. `names`: of images, besides those of the
    tests."""
    # A file without a name: nothing of it is left, however this process ends.
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kubernetes.kubelet"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        bed = Bed(plane, process, errors)
        try:
            bed.ask(to_json(_configured(plane, names)))
            yield bed
        finally:
            _end(process)


def _configured(plane: ControlPlane, names: Sequence[str]) -> Config:
    """What the kubelet needs."""
    kubeconfig, certificate, key, authority = (
        plane.cluster.read(MASTER, path)
        for path in (KUBECONFIG, f"{FILES}/nodes.crt", f"{FILES}/nodes.key", f"{FILES}/ca.crt")
    )
    stand = places()
    return Config(
        cluster=plane.cluster.name,
        kubeconfig=kubeconfig,
        certificate=certificate,
        key=key,
        authority=authority,
        version=plane.programs.versions["k8s.io/kubernetes"],
        nodes=[node(name, place) for name, place in stand.items()],
        images=images(str(ROOT / ".venv-torch/bin/python"), names),
        places=stand,
    )


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        assert process.stdin
        process.stdin.close()
        try:
            process.wait(ASK_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
