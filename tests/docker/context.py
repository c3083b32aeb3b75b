"""What a build gets of this checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write_context(place: Path) -> Path:
    """Copy to `place` what `gcloud builds submit ..` would send: the checkout without what .gcloudignore names."""
    # The rules of the file are those of .gitignore: git itself applies them, in a repository without a commit, for an
    # unpacked sdist is none.
    subprocess.run(["git", "init", "--quiet"], cwd=place, check=True)
    for name in _files(place, ROOT, "--exclude-standard"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    ignored = _files(place, place, "--ignored", "--exclude-from=.gcloudignore")
    shutil.rmtree(place / ".git")
    for name in ignored:
        (place / name).unlink()
    return place


def _files(repository: Path, tree: Path, *options: str) -> list[str]:
    argv = ["git", f"--git-dir={repository}/.git", f"--work-tree={tree}", "ls-files", "--others", "-z", *options]
    listed = subprocess.run(argv, cwd=tree, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name]
