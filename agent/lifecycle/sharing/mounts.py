"""Whether a mounted file system can hold what pods tell each other."""

from __future__ import annotations

from typing import NamedTuple

from agent.errors import DirectoryUnusable

BUCKETS = {
    "gcsfuse",
    "s3fs",
    "goofys",
    "geesefs",
    "mountpoint-s3",
    "rclone",
    "blobfuse",
    "blobfuse2",
    "cosfs",
    "ossfs",
    "ossfs2",
    "obsfs",
    "riofs",
}
"""Programs that show a bucket as a directory."""


class DirectoryMount(NamedTuple):
    """Where a directory lies, as /proc/self/mountinfo says."""

    point: str
    kind: str
    """Type of the file system: nfs4, lustre, fuse.gcsfuse."""
    source: str
    links: bool = True
    """It has hard links."""


def check_mount(directory: str, mount: DirectoryMount) -> None:
    """Raises DirectoryUnusable where no facts may be kept."""
    kind = mount.kind.removeprefix("fuse.")
    if mount.point == "/":
        raise DirectoryUnusable(
            f"nothing is mounted at {directory}: what is written there stays in this container",
            "mount the file system that all pods share (NFS, Lustre), and set A4_SHARED_DIR to a directory on it",
        )
    what = ""
    if kind in BUCKETS or mount.source in BUCKETS:
        what = f"{directory} is a bucket ({kind if kind in BUCKETS else mount.source} at {mount.point})"
    elif not mount.links:
        what = f"{directory} ({mount.kind} at {mount.point}) has no hard links, as mounts of buckets have none"
    if what:
        why = "files there appear late, and two pods can both be the first to make one"
        raise DirectoryUnusable(f"{what}: {why}", "set A4_SHARED_DIR to a directory on NFS or Lustre")
