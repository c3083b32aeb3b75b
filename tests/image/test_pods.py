"""Pods of the rendered chart, in containers: the command, environment, mounts and probes that Kubernetes would get."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chart.helm import Rendered
from tests.image.containers import ROOT, Images, job, make_base, podman
from tests.workbench.local.helpers import eventually

Render = Callable[..., Rendered]


def test_four_pods_run_connectivity_and_end(images: Images, render: Render, tmp_path: Path) -> None:
    rendered = render("workload.run=connectivity", "workload.gpus=32")
    with job(rendered, images.image, tmp_path) as pods:
        codes = [pod.code() for pod in pods]
        said = [pod.said for pod in pods]
    assert codes == [0] * 4, "\n".join(said)
    assert "connectivity is good: 32 ranks on 4 pods" in said[0]
    assert [pod.ending["code"] for pod in pods] == [0] * 4


def test_probes_answer_and_a_term_to_all_ends_the_job(images: Images, render: Render, tmp_path: Path) -> None:
    rendered = render("workload.gpus=16", "task_script=echo here; exec sleep 3600")
    workload = rendered.workload
    startup, liveness = (workload[name]["exec"]["command"] for name in ("startupProbe", "livenessProbe"))
    ports = {port["name"]: port["containerPort"] for port in workload["ports"]}
    port = ports[workload["readinessProbe"]["tcpSocket"]["port"]]
    with job(rendered, images.image, tmp_path) as pods:
        eventually(lambda: all(pod.execute(*startup) == 0 for pod in pods))
        assert [pod.execute(*liveness) for pod in pods] == [0, 0]
        eventually(lambda: all(pod.reaches(port) for pod in pods))
        eventually(lambda: all("here" in pod.said for pod in pods))
        grace = str(rendered.pod["terminationGracePeriodSeconds"])
        stops = [subprocess.Popen(["podman", "stop", "--time", grace, pod.name]) for pod in pods]
        assert [stop.wait(300) for stop in stops] == [0, 0]
        codes = [pod.code() for pod in pods]
    # 137 would be SIGKILL, after the grace time.
    assert codes == [143, 143], "\n".join(pod.said for pod in pods)


def test_a_missing_program_is_the_jobs_code(images: Images, render: Render, tmp_path: Path) -> None:
    rendered = render("workload.run=nccl", "workload.gpus=8")
    with job(rendered, images.image, tmp_path) as (pod,):
        code = pod.code()
    assert (code, pod.ending["code"]) == (66, 66), pod.said
    assert "all_reduce" in pod.ending["what"] or "nccl" in pod.said


@pytest.mark.parametrize(("release", "mpi"), [("bullseye", "4.1.0"), ("bookworm", "4.1.4"), ("trixie", "5.0.7")])
def test_an_image_without_the_agent_gets_it_from_an_init_container(
    images: Images, render: Render, release: str, mpi: str, tmp_path: Path
) -> None:
    """With an older C library than the agent's Python has, with the same, and with a newer one; no OpenSSH, no tini."""
    image = f"localhost/debian:{release}-mpi"
    make_base(release, images.host, image, "openmpi-bin", without=["usr/bin/ssh"])
    values = (f"workload.image={image}", f"workload.agentImage={images.image}", "workload.gpus=16")
    with job(render(*values, "workload.run=connectivity"), image, tmp_path) as pods:
        codes = [pod.code() for pod in pods]
        said = [pod.said for pod in pods]
    podman("rmi", "--force", image)
    assert codes == [0, 0], "\n".join(said)
    assert "connectivity is good: 16 ranks on 2 pods" in said[0]
    assert f"(Open MPI {mpi})" in said[0]


def test_the_ten_lines_of_the_docs_make_an_image(images: Images, context: Path, render: Render, tmp_path: Path) -> None:
    (lines,) = re.findall(r"```dockerfile\n(.*?)```", (ROOT / "docs/images.md").read_text(), re.DOTALL)
    assert len(lines.splitlines()) == 10
    recipe = tmp_path / "Dockerfile"
    recipe.write_text(lines)
    # How this machine reaches packages is nothing that the lines could say.
    pip = ("--volume", f"{images.host.files}/pip/pip.conf:/etc/pip.conf:ro")
    options = ("--isolation", "chroot", "--layers=false", "--from", images.without_agent, *images.host.options, *pip)
    podman("build", *options, "--file", recipe, "--tag", "localhost/mine", context)
    with job(render("workload.run=connectivity", "workload.gpus=8"), "localhost/mine", tmp_path) as (pod,):
        code = pod.code()
    assert code == 0, pod.said
    assert "connectivity is good: 8 ranks on 1 pod" in pod.said
