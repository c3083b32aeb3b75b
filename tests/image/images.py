"""Images by podman, as Cloud Build and the lines of the docs make them, and foreign ones."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
STORE = Path("/var/lib/containers")
SECONDS = 600.0
RELEASE = "bookworm"
CGROUP = os.environ.get("IMAGE_CGROUP", "/a4-image")
"""Where scripts/test-image.sh looks for what is left."""
SITES = "/etc/apt/sources.list"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
BASE = "localhost/debian:12"
WITHOUT_AGENT = "localhost/without-agent"
CPU = "localhost/a4-agent-cpu:debian12"
BY_THE_DOCS = "localhost/mine:1"
FOREIGN = {"bullseye": "4.1.0", "bookworm": "4.1.4", "trixie": "5.0.7"}
"""Open MPI of Debian's releases: one has an older C library than the agent's Python, one the same, one a newer one."""
PIP_OPTIONS = {"index-url", "extra-index-url", "trusted-host", "proxy"}


def done(*argv: str | Path, cwd: Path | None = None, seconds: float = SECONDS) -> str:
    """Standard output of a command that must end with 0."""
    result = subprocess.run([str(word) for word in argv], cwd=cwd, capture_output=True, text=True, timeout=seconds)
    assert result.returncode == 0, f"{argv} has ended with {result.returncode}:\n{result.stdout}{result.stderr}"
    return result.stdout


def podman(*words: str | Path, cwd: Path | None = None) -> str:
    return done("podman", "--cgroup-manager", "cgroupfs", *words, cwd=cwd).strip()


class Host(NamedTuple):
    """How this machine reaches packages: for builds, and never in an image."""

    mirror: str
    files: Path
    """What builds get to see."""
    marker: str
    """A word in what they see."""

    @property
    def options(self) -> list[str]:
        """For `podman build`: while it builds, files of this machine hide those of the base."""
        mounts = {CERTIFICATES: CERTIFICATES, str(self.files / "sources.list"): SITES, str(self.files / "pip"): "/mnt"}
        volumes = [word for source, target in mounts.items() for word in ("--volume", f"{source}:{target}:ro")]
        return ["--network", "host", *volumes]


def this_host(release: str, files: Path) -> Host:
    """The mirror of Debian and the configuration of pip that this machine uses itself."""
    query = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Component: main")
    mirrors = [uri for uri in done(*query).split() if uri.rstrip("/").endswith("/debian")]
    mirror = (mirrors or ["http://deb.debian.org/debian"])[0].rstrip("/")
    marker = f"# a build's own: {secrets.token_hex(16)}\n"
    lines = [line.partition("=") for line in done(sys.executable, "-m", "pip", "config", "list").splitlines()]
    options = {name.rpartition(".")[2]: value.strip("'") for name, _, value in lines}
    kept = {name: value for name, value in options.items() if name in PIP_OPTIONS and not value.startswith("file:")}
    text = "".join(f"{name} = {value}\n" for name, value in {**kept, "cert": CERTIFICATES}.items())
    (files / "pip").mkdir(parents=True)
    (files / "pip/pip.conf").write_text(f"{marker}[global]\n{text}")
    (files / "sources.list").write_text(f"{marker}deb {mirror} {release} main\n")
    return Host(mirror, files, marker.strip())


def foreign(release: str) -> str:
    """The image of that release which has Open MPI, but no agent, OpenSSH or tini."""
    return f"localhost/debian:{release}-mpi"


def make_base(release: str, host: Host, name: str, *packages: str, without: Sequence[str] = ()) -> None:
    """An image of Debian as debootstrap makes it, without some files, which names Debian's own mirror."""
    place = STORE / f"base-{release}"
    words = ("--variant=minbase", f"--include={','.join(('ca-certificates', *packages))}", release, place, host.mirror)
    done("debootstrap", *words)
    for file in without:
        (place / file).unlink()
    (place / SITES[1:]).write_text(f"deb http://deb.debian.org/debian {release} main\n")
    with subprocess.Popen(["tar", "-C", str(place), "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["podman", "import", "--quiet", "-", name], stdin=tar.stdout, check=True, capture_output=True)
    assert tar.returncode == 0
    done("rm", "-rf", place)


def build(recipe: Path, name: str, context: Path, host: Host, *options: str) -> None:
    common = ("--isolation", "chroot", "--layers=false", *host.options)
    podman("build", *common, *options, "--file", recipe, "--tag", name, context)


def recipe_of_the_docs() -> str:
    """The lines by which people put the agent into an image of their own."""
    (lines,) = re.findall(r"```dockerfile\n(.*?)```", (ROOT / "docs/images.md").read_text(), re.DOTALL)
    assert len(lines.splitlines()) == 10, lines
    return str(lines)


def build_images(context: Path, files: Path) -> Host:
    """All that are named above; with what they were built."""
    host = this_host(RELEASE, files)
    make_base(RELEASE, host, BASE)
    pip = ("--build-arg", "PIP_CONFIG_FILE=/mnt/pip.conf")
    for recipe, base, name in (("a4-agent-cpu/", BASE, WITHOUT_AGENT), ("agent.", WITHOUT_AGENT, CPU)):
        build(context / f"docker/{recipe}Dockerfile", name, context, host, "--build-arg", f"BASE={base}", *pip)
    (files / "Dockerfile").write_text(recipe_of_the_docs())
    # How this machine reaches packages is nothing that the lines could say.
    pip = ("--volume", f"{host.files}/pip/pip.conf:/etc/pip.conf:ro")
    build(files / "Dockerfile", BY_THE_DOCS, context, host, "--from", WITHOUT_AGENT, *pip)
    for release in FOREIGN:
        make_base(release, host, foreign(release), "openmpi-bin", without=["usr/bin/ssh"])
    return host


@contextmanager
def mounted(image: str) -> Iterator[Path]:
    """The files of an image."""
    yield Path(podman("image", "mount", image))
    podman("image", "umount", image)
