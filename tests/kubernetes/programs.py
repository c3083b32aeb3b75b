"""The programs of a control plane, built once from Go modules and kept outside the checkout.

go.mod and go.sum hold every version: in control/ those of Kubernetes and etcd, in controllers/ those of JobSet and
Kueue, which do not compile with the newest Kubernetes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

CONTROL = Path(__file__).with_name("control")
CONTROLLERS = Path(__file__).with_name("controllers")
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
"""One program, which goes by its name."""
COMMANDS = {"jobset": "sigs.k8s.io/jobset", "kueue": "sigs.k8s.io/kueue/cmd/kueue"}
"""What builds each controller."""
CHARTS = {"jobset": "sigs.k8s.io/jobset", "kueue": "sigs.k8s.io/kueue"}
"""The module with each one's own Helm chart, in charts/."""
COMPILERS_GOGC = "400"
"""A fifth less work for the compiler, with memory that machines have."""
MISSING = 69
"""What sysexits calls EX_UNAVAILABLE."""


class Unavailable(Exception):
    """The programs cannot be built here."""


class Programs(NamedTuple):
    directory: Path
    charts: dict[str, Path]
    """Directories of the controllers' Helm charts, by controller."""
    kubernetes: Path
    """Its sources."""
    versions: dict[str, str]
    """By module."""


def cache() -> Path:
    """Where the programs are kept, by what they are built from."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sources = [CONTROL / "main.go", *(home / name for home in (CONTROL, CONTROLLERS) for name in ("go.mod", "go.sum"))]
    content = b"".join(source.read_bytes() for source in sources)
    return caches / "a4-agent" / "kubernetes" / hashlib.sha256(content).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Those that control/go.mod asks for, by module."""
    return dict(re.findall(r"^\t(\S+) (v\S+)$", (CONTROL / "go.mod").read_text(), re.MULTILINE))


def programs() -> Programs:
    """Build what is missing; a build with everything in Go's caches takes seconds. Raises Unavailable."""
    check_go()
    directory, found = cache(), versions()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one build at a time, of all checkouts
        if not all((directory / name).exists() for name in (*NAMES, *COMMANDS)):
            _build(directory, found["k8s.io/kubernetes"])
    # They are downloaded if the programs are there and Go's caches are not.
    charts = {name: _sources(module, CONTROLLERS) / "charts" / name for name, module in CHARTS.items()}
    return Programs(directory, charts, _sources("k8s.io/kubernetes", CONTROL), found)


def _sources(module: str, graph: Path) -> Path:
    return Path(json.loads(_go("mod", "download", "-json", module, cwd=graph))["Dir"])


def _build(directory: Path, version: str) -> None:
    for left in directory.parent.glob("tmp*"):  # of a build that was killed
        shutil.rmtree(left)
    major, minor = re.findall(r"\d+", version)[:2]
    # Kueue reads the server's version when it starts, and a server that was built without these has none.
    flags = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    linked = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in flags.items())])
    with tempfile.TemporaryDirectory(dir=directory.parent) as place:
        began = time.monotonic()
        print("building Kubernetes' programs; the first time this takes many minutes …", file=sys.stderr, flush=True)
        _go("build", "-trimpath", "-ldflags", linked, "-o", f"{place}/", ".")
        _go("build", "-trimpath", "-ldflags", "-s -w", "-o", f"{place}/", *COMMANDS.values(), cwd=CONTROLLERS)
        print(f"built them in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        for name in NAMES:
            os.link(f"{place}/control", f"{place}/{name}")
        shutil.rmtree(directory, ignore_errors=True)
        os.rename(place, directory)
        os.mkdir(place)  # what is removed now


def check_go() -> None:
    """Raises Unavailable without a Go that is new enough."""
    (wanted,) = re.findall(r"^go (\S+)$", (CONTROL / "go.mod").read_text(), re.MULTILINE)
    if not shutil.which("go"):
        raise Unavailable(f"the control plane is built with Go {wanted} or later, and go is not in PATH")
    found = _go("env", "GOVERSION").removeprefix("go")
    if _number(found) < _number(wanted):
        raise Unavailable(f"the control plane is built with Go {wanted} or later, and this is {found}")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _go(*words: str, cwd: Path = CONTROL) -> str:
    """What a command of Go prints. Raises Unavailable with what it says."""
    # The graph is what go.sum says: no newer Go, and no other module, is fetched for it.
    env = {"GOGC": COMPILERS_GOGC, **os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    env["GOFLAGS"] = f"-mod=readonly -buildvcs=false {os.environ.get('GOFLAGS', '')}"
    done = subprocess.run(["go", *words], cwd=cwd, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Unavailable(f"go {' '.join(words[:2])} ended with {done.returncode}")
    return done.stdout.strip()


def main() -> int:
    try:
        print(programs().directory)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return MISSING
    return 0


if __name__ == "__main__":
    sys.exit(main())
