"""How real GPUs are dealt out to pods, with device files that only look like those of GPUs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.workbench.local import host_survey
from agent.workbench.local.dealt_gpus import (
    Gpus,
    check_room,
    devices_of,
    driver_mounts,
    find_gpus,
    gpu_variables,
    guarded_parameters,
)
from agent.workbench.local.podenv import ClusterBuild, pod_environment
from agent.workbench.local.spec import ClusterSpec
from tests.workbench.local.helpers import needs_root, up

FOUR = Gpus(tuple(f"/dev/nvidia{number}" for number in range(4)), ("/dev/nvidiactl",))


def spec(pods: int, gpus: int, *, real: bool = True) -> ClusterSpec:
    return ClusterSpec(pods=pods, gpus_per_pod=gpus, name="job", real_gpus=real)


def test_gpus_are_found_by_their_numbers(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia9", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia9x", "null"):
        (tmp_path / name).touch()
    found = find_gpus(str(tmp_path))
    assert found.numbered == (f"{tmp_path}/nvidia9", f"{tmp_path}/nvidia10")
    assert found.shared == (f"{tmp_path}/nvidiactl", f"{tmp_path}/nvidia-uvm")


def test_each_pod_has_its_share() -> None:
    assert devices_of(spec(2, 2), 0, FOUR) == ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")
    assert devices_of(spec(2, 2), 1, FOUR) == ("/dev/nvidia2", "/dev/nvidia3", "/dev/nvidiactl")
    assert devices_of(spec(2, 2, real=False), 1, FOUR) == ()


def test_more_than_there_are_is_refused() -> None:
    check_room(spec(4, 1), FOUR)
    check_room(spec(100, 8, real=False), FOUR)
    with pytest.raises(UsageError, match=r"3 x 2 real GPUs .* are 6, this machine has 4"):
        check_room(spec(3, 2), FOUR)


def test_what_this_machine_says_to_programs_on_gpus_goes_with_them() -> None:
    environ = {"NCCL_NVLS_ENABLE": "0", "LD_LIBRARY_PATH": "/driver", "NCCLX": "1", "HOME": "/home/me"}
    given = gpu_variables(environ)
    assert given == {"NCCL_NVLS_ENABLE": "0", "LD_LIBRARY_PATH": "/driver"}
    job = ClusterBuild("uid", "stamp", "/bin", gpu_variables=given)
    assert pod_environment(spec(2, 2), job, 0).items() >= given.items()
    assert not pod_environment(spec(2, 2, real=False), job, 0).keys() & given.keys()


def test_mounts_of_the_driver() -> None:
    paths = ["/home", "/usr/bin/nvidia-smi", "/usr/lib/x86_64-linux-gnu/libcuda.so.580", "/usr/local/nvidia"]
    assert driver_mounts(paths) == paths[1:]


def test_the_driver_makes_no_device_files() -> None:
    text = "EnableMSI: 1\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n"
    assert guarded_parameters(text) == text.replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0")


@needs_root
def test_pods_find_their_share_and_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a container runtime has mounted the driver file by file."""
    for minor, name in enumerate(("nvidia0", "nvidia1", "nvidiactl")):
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(1, 3 + 2 * minor))
    library = tmp_path / "lib" / "libcuda.so.1"
    library.parent.mkdir()
    library.write_text("the driver")
    gpus = find_gpus(str(tmp_path))
    monkeypatch.setattr(host_survey, "find_gpus", lambda: gpus)
    monkeypatch.setattr(host_survey, "driver_mounts", lambda points: [str(library)])
    with up(2, gpus_per_pod=1, real_gpus=True) as cluster:
        shown = [cluster.exec(pod, ["ls", str(tmp_path)]).stdout.split() for pod in range(2)]
        assert shown == [["lib", "nvidia0", "nvidiactl"], ["lib", "nvidia1", "nvidiactl"]]
        assert cluster.read(1, str(library)) == "the driver"
        assert cluster.exec(1, ["sh", "-c", f"echo x >{library}"]).returncode != 0
