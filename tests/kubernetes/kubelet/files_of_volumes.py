"""Volumes on the disk: directories that containers mount, and files that are replaced all at once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.kubernetes.kubelet.volumes import File


def replace(directory: Path, files: Mapping[str, File]) -> None:
    """What the kubelet does: each name leads through `..data`, which changes to the new content at once."""
    if _present(directory) == files:
        return
    directory.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    new.chmod(0o755)
    for path, file in files.items():
        target = new / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    old = directory / "..data"
    last = os.readlink(old) if old.is_symlink() else ""
    (directory / "..data_tmp").symlink_to(new.name)
    (directory / "..data_tmp").replace(old)
    tops = {Path(path).parts[0] for path in files}
    for top in tops:
        if not (directory / top).is_symlink():
            (directory / top).symlink_to(f"..data/{top}")
    for each in directory.iterdir():
        if not each.name.startswith("..") and each.name not in tops:
            each.unlink()
    if last:
        shutil.rmtree(directory / last)


def _present(directory: Path) -> dict[str, File] | None:
    now = directory / "..data"
    if not now.exists():
        return None
    paths = [path for path in now.resolve().rglob("*") if path.is_file()]
    home = now.resolve()
    return {str(path.relative_to(home)): File(path.read_bytes(), path.stat().st_mode & 0o777) for path in paths}
