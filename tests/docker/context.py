"""What a build gets of this checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write_context(place: Path) -> Path:
    """Copy to `place` what `gcloud builds submit ..` would send: the checkout without what .gcloudignore names."""
    for name in _files("-c", "-o", "--exclude-standard", cwd=ROOT):
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    # The rules of the file are those of .gitignore: git itself applies them.
    subprocess.run(["git", "init", "--quiet"], cwd=place, check=True)
    ignored = _files("-o", "-i", "--exclude-from=.gcloudignore", cwd=place)
    shutil.rmtree(place / ".git")
    for name in ignored:
        (place / name).unlink()
    return place


def _files(*options: str, cwd: Path) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *options], cwd=cwd, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name]
