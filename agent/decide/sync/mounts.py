"""Whether a mounted file system can hold what pods tell each other."""

from __future__ import annotations

from typing import NamedTuple

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


def refusal(directory: str, mount: DirectoryMount) -> tuple[str, str]:
    """Why no facts may be kept there, and what to do; two empty texts when they may."""
    kind = mount.kind.removeprefix("fuse.")
    if mount.point == "/":
        return (
            f"nothing is mounted at {directory}: what is written there stays in this container",
            "mount the file system that all pods share (NFS, Lustre), and set A4_SHARED_DIR to a directory on it",
        )
    if kind in BUCKETS or mount.source in BUCKETS:
        return _bucket(f"{directory} is a bucket ({kind if kind in BUCKETS else mount.source} at {mount.point})")
    if not mount.links:
        return _bucket(f"{directory} ({mount.kind} at {mount.point}) has no hard links, as mounts of buckets have none")
    return "", ""


def _bucket(what: str) -> tuple[str, str]:
    why = "files there appear late, and two pods can both be the first to make one"
    return f"{what}: {why}", "set A4_SHARED_DIR to a directory on NFS or Lustre"
