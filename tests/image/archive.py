"""The images that pods get, as one archive in the user's cache, for a container runtime that is not podman.

    scripts/test-image.sh .venv/bin/python -m tests.image.archive

prints the archive's path, and makes it first if it is not there. It is named by the content that the image is built of.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from tests.docker.context import write_context
from tests.image.images import BY_THE_DOCS, CPU, FOREIGN, build_images, foreign, podman, recipe_of_the_docs


def archive_of(context: Path) -> Path:
    """Where the images of this content are kept."""
    found = hashlib.sha256(recipe_of_the_docs().encode())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(context)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "a4-agent" / "images" / f"{found.hexdigest()[:16]}.tar"


def save(archive: Path) -> None:
    """What was built, in place of the one that is there."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    for old in archive.parent.iterdir():
        old.unlink()
    half = archive.with_suffix(".half")
    names = (CPU, BY_THE_DOCS, *map(foreign, FOREIGN))
    podman("save", "--quiet", "--format", "docker-archive", "--multi-image-archive", "--output", half, *names)
    half.rename(archive)


def present() -> Path:
    """The archive's path. Raises FileNotFoundError with what makes it."""
    with tempfile.TemporaryDirectory() as place:
        archive = archive_of(write_context(Path(place)))
    if not archive.exists():
        raise FileNotFoundError(f"no {archive}: make test-kubernetes makes it, and make test-image")
    return archive


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        context, files = Path(place, "context"), Path(place, "host")
        context.mkdir()
        archive = archive_of(write_context(context))
        if not archive.exists():
            build_images(context, files)
            save(archive)
    print(archive)


if __name__ == "__main__":
    main()
