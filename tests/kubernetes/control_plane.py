"""A Kubernetes control plane in a local cluster: etcd, API server, JobSet and Kueue, each with its real webhooks.

Three pods of a local cluster have a network, /tmp and /run of their own, as JobSet and Kueue want the same ports and
the same directory for certificates. Their namespaces end with the process that made them, however it ends.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby

import yaml

from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import ClusterSpec, address
from tests.chart.helm import HELM, LOADER
from tests.kubernetes.certificates import Authority, Pair, signing_pair
from tests.kubernetes.controllers import Object, configuration, endpoints, of
from tests.kubernetes.programs import Programs

MASTER, JOBSET, KUEUE = range(3)
"""Pods by what runs in them."""
PLACES = {"jobset": JOBSET, "kueue": KUEUE}
OF_MASTER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
SERVICE_ADDRESSES = "198.19.0.0/24"
FIRST_SERVICE = "198.19.0.1"
"""That of the Service `kubernetes`."""
FILES = "/etc/test-bed"
KUBECONFIG = f"{FILES}/kubeconfig"
SERVING_CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"
KUBELET_ADDRESS = "198.18.0.2"
"""Where the nodes' servers listen, on the cluster's bridge."""
REAL_ADDRESS = "198.18.0.3"
"""The same of the real kubelet."""
TOLERATION_SECONDS = 10
NODE_SECONDS = 50.0
"""Without a word of a node, until it is given up. Kubernetes' default."""
READY_SECONDS = 600.0
"""Until a program of the control plane must be ready, on a machine that may be busy."""
ASK_SECONDS = 300.0
"""Until a command must have ended."""
NOT_APPLIED = ("Deployment", "APIService")
"""Left out of the controllers' charts: the programs run without pods, and nobody serves Kueue's visibility API."""

_HEALTH = "import sys, urllib.request as u; u.urlopen(f'http://127.0.0.1:8081/{sys.argv[1]}', timeout=5)"


class Refused(Exception):
    """What kubectl says when the API server refuses something."""


class ControlPlane:
    """Made by `running`. kubectl runs in the first pod, as an administrator."""

    def __init__(self, cluster: LocalCluster, programs: Programs) -> None:
        self.cluster = cluster
        self.programs = programs
        self._stack = ExitStack()
        self.namespaces = {"default", "kube-system"}

    def kubectl(self, *words: str, input: str = "") -> str:
        """What it prints. Raises Refused with what it says when it does not end with 0."""
        done = self.run(MASTER, "kubectl", *words, input=input)
        if done.returncode:
            raise Refused(done.stderr)
        return done.stdout

    def create(self, objects: Sequence[Object], namespace: str = "default", *flags: str) -> list[Object]:
        """Create objects, each field of which the server must know; returns them as they are stored."""
        words = ("create", "--validate=strict", "--filename=-", "--output=json", *flags)
        stored = list[Object]()
        # One namespace a call: kubectl refuses objects that name another.
        for where, some in groupby(objects, lambda each: each["metadata"].get("namespace", namespace)):
            text = "".join(f"---\n{json.dumps(each)}\n" for each in some)
            stored += values(self.kubectl(*words, "--namespace", where, input=text))
        return stored

    def make_namespace(self, name: str) -> None:
        """Nothing if it was made before."""
        if name not in self.namespaces:
            self.create([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
            self.namespaces.add(name)

    def run(self, pod: int, program: str, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
        argv = [str(self.programs.directory / program), *words]
        return self.cluster.exec(pod, argv, env={"KUBECONFIG": KUBECONFIG}, input=input, timeout=ASK_SECONDS)

    def logs(self) -> str:
        """The end of what each program has said."""
        return "\n".join(
            f"--- {name}\n{self.cluster.read_bytes(pod, [_log(name)])[_log(name)] or b''!r:.20000}"
            for pod, name in [*((MASTER, name) for name in OF_MASTER), (JOBSET, "jobset"), (KUEUE, "kueue")]
        )

    def start(self) -> None:
        """Raises TimeoutError with the logs when something does not get ready."""
        try:
            self._start_server()
            self._start_managers()
            for controller in PLACES:
                self._start_controller(controller)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.logs()}") from error

    def close(self) -> None:
        self._stack.close()

    def _start_server(self) -> None:
        own = address(MASTER)
        storage = "http://127.0.0.1:2379"
        self._spawn(
            MASTER,
            "etcd",
            "--data-dir=/run/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={storage}",
            f"--advertise-client-urls={storage}",
            "--listen-peer-urls=http://127.0.0.1:2380",
        )
        self._spawn(
            MASTER,
            "kube-apiserver",
            f"--etcd-servers={storage}",
            f"--bind-address={own}",
            f"--advertise-address={own}",
            "--secure-port=6443",
            f"--tls-cert-file={FILES}/server.crt",
            f"--tls-private-key-file={FILES}/server.key",
            f"--client-ca-file={FILES}/ca.crt",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={FILES}/accounts.pub",
            f"--service-account-signing-key-file={FILES}/accounts.key",
            f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
            "--allow-privileged=true",
            # Webhooks' Services lead to their endpoints without a kube-proxy.
            "--enable-aggregator-routing=true",
            # `kubectl logs` and `exec` ask the nodes' server, by the address that nodes name for it.
            "--kubelet-preferred-address-types=ExternalIP,InternalIP",
            f"--kubelet-certificate-authority={FILES}/ca.crt",
            f"--kubelet-client-certificate={FILES}/client.crt",
            f"--kubelet-client-key={FILES}/client.key",
            # A pod leaves a node that is gone after so many seconds, in place of five minutes.
            f"--default-not-ready-toleration-seconds={TOLERATION_SECONDS}",
            f"--default-unreachable-toleration-seconds={TOLERATION_SECONDS}",
        )
        self.until(MASTER, f"{self.programs.directory}/kubectl get --raw=/readyz")

    def _start_managers(self) -> None:
        common = (f"--kubeconfig={KUBECONFIG}", "--leader-elect=false")
        self._spawn(
            MASTER,
            "kube-controller-manager",
            *common,
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={FILES}/accounts.key",
            f"--root-ca-file={FILES}/ca.crt",
            f"--node-monitor-grace-period={NODE_SECONDS:g}s",
        )
        self._spawn(MASTER, "kube-scheduler", *common)

    def _start_controller(self, name: str) -> None:
        """As its chart says, but for the pods: nobody runs any yet."""
        pod, namespace = PLACES[name], f"{name}-system"
        objects = self._chart(name, namespace)
        self.make_namespace(namespace)
        self.create([each for each in objects if each["kind"] not in NOT_APPLIED], namespace)
        webhook = f"{name}-webhook-service"
        self.create([endpoints(of(objects, "Service", webhook), address(pod))], namespace)
        self.cluster.write(pod, "/run/config.yaml", configuration(name, objects))
        self._spawn(pod, name, "--config=/run/config.yaml", "--zap-log-level=2")
        self._mount_certificates(pod, namespace, f"{name}-webhook-server-cert")
        self.until(pod, f'python3 -c "{_HEALTH}" readyz')
        self._watch(pod, name)

    def _chart(self, name: str, namespace: str) -> list[Object]:
        """The objects of a controller's own chart."""
        version = self.programs.versions["k8s.io/kubernetes"]
        words = [
            str(HELM),
            "template",
            name,
            str(self.programs.charts[name]),
            "--namespace",
            namespace,
            "--include-crds",
        ]
        words += ["--kube-version", version]
        text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=ASK_SECONDS).stdout
        return [each for each in yaml.load_all(text, LOADER) if each]

    def _mount_certificates(self, pod: int, namespace: str, secret: str) -> None:
        """The controller fills its Secret and waits for the files, which a kubelet would bring."""
        kubectl = f"{self.programs.directory}/kubectl --namespace {namespace} get secret {secret} --output"
        self.until(pod, f"{kubectl} 'jsonpath={{.data.tls\\.crt}}' | grep -q .")
        files = " && ".join(
            f"{kubectl} 'go-template={{{{index .data \"{file}\" | base64decode}}}}' >{SERVING_CERTIFICATES}/{file}"
            for file in ("ca.crt", "ca.key", "tls.key", "tls.crt")
        )
        self.until(pod, f"mkdir -p {SERVING_CERTIFICATES} && {files}")

    def _spawn(self, pod: int, program: str, *words: str) -> None:
        """Start it, again and again, as the kubelet does with what ends."""
        again = """\
            log=$1 pause=$2; shift 2
            while :; do
                "$@" >>"$log" 2>&1 </dev/null
                [ ! -e "$pause" ] || { sleep "$(cat "$pause")"; rm "$pause"; }
                sleep 0.5
            done"""
        argv = [
            "sh",
            "-c",
            again,
            "sh",
            _log(program),
            pause_file(program),
            str(self.programs.directory / program),
            *words,
        ]
        self._stack.enter_context(self.cluster.popen(pod, argv, env={"KUBECONFIG": KUBECONFIG}))

    def _watch(self, pod: int, program: str) -> None:
        """Kill it when it does not answer, as the liveness probe of its Deployment does."""
        probe = """\
            failures=0
            while sleep 20; do
                if python3 -c "$1" healthz 2>/dev/null; then failures=0; else failures=$((failures + 1)); fi
                [ "$failures" -lt 3 ] || { pkill -KILL -x "$2"; failures=0; }
            done"""
        self._stack.enter_context(self.cluster.popen(pod, ["sh", "-c", probe, "sh", _HEALTH, program]))

    def until(self, pod: int, command: str) -> None:
        """Until a command in a pod ends with 0. Raises TimeoutError with what it says."""
        loop = f"until {{ {command}; }} >/run/waited 2>&1; do sleep 0.1; done"
        try:
            self.cluster.exec(pod, ["sh", "-c", loop], env={"KUBECONFIG": KUBECONFIG}, timeout=READY_SECONDS)
        except TimeoutError as error:
            said = self.cluster.read(pod, "/run/waited")
            raise TimeoutError(f"pod {pod} of the control plane: {command}: {said}") from error


@contextmanager
def running(programs: Programs) -> Iterator[ControlPlane]:
    spec = ClusterSpec(
        pods=len(PLACES) + 1, gpus_per_pod=1, entrypoint=("tini", "--", "sleep", "infinity"), files=_files()
    )
    with LocalCluster(spec) as cluster:
        cluster.start()
        plane = ControlPlane(cluster, programs)
        try:
            plane.start()
            yield plane
        finally:
            plane.close()


def _files() -> dict[str, bytes]:
    """Keys and certificates for every pod, by path."""
    authority = Authority()
    server = authority.server(
        "kube-apiserver",
        [address(MASTER), FIRST_SERVICE, "127.0.0.1"],
        ["kubernetes.default.svc", "kubernetes.default"],
    )
    client, accounts = authority.client("kube-apiserver", "system:masters"), signing_pair()
    nodes = authority.server("nodes", [KUBELET_ADDRESS, REAL_ADDRESS])
    return {
        f"{FILES}/ca.crt": authority.certificate,
        f"{FILES}/server.crt": server.certificate,
        f"{FILES}/server.key": server.key,
        f"{FILES}/nodes.crt": nodes.certificate,
        f"{FILES}/nodes.key": nodes.key,
        f"{FILES}/client.crt": client.certificate,
        f"{FILES}/client.key": client.key,
        f"{FILES}/accounts.pub": accounts.certificate,
        f"{FILES}/accounts.key": accounts.key,
        KUBECONFIG: _kubeconfig(authority, authority.client("administrator", "system:masters")),
    }


def _kubeconfig(authority: Authority, user: Pair) -> bytes:
    server = {
        "server": f"https://{address(MASTER)}:6443",
        "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
    }
    credentials = {
        "client-certificate-data": base64.b64encode(user.certificate).decode(),
        "client-key-data": base64.b64encode(user.key).decode(),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test-bed", "cluster": server}],
        "users": [{"name": "administrator", "user": credentials}],
        "contexts": [{"name": "test-bed", "context": {"cluster": "test-bed", "user": "administrator"}}],
        "current-context": "test-bed",
    }
    return json.dumps(config).encode()


def values(text: str) -> Iterator[Object]:
    """JSON values that stand one after the other."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:]


def _log(program: str) -> str:
    return f"/run/{program}.log"


def pause_file(program: str) -> str:
    """A file with the seconds for which the program shall not be started again."""
    return f"/run/{program}.pause"
