"""Others may write to a share, too: what they lay there leads root, in a pod, nowhere else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.entrypoints import load
from tests.fake.storage import PROGRAM

EVER = float("inf")
CLAIMS = ".a4-agent/claims"
FOLDER = f"{CLAIMS}/convert@place"
LEVELS = (".a4-agent", CLAIMS, FOLDER)
SECRET = "another's"


SHARE = load("share-files")


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """A share with a claim's folders, reached through a link of the pod's own."""
    (tmp_path / "mount" / FOLDER).mkdir(parents=True)
    for name in ("done.x.0", "old"):
        (tmp_path / "mount" / FOLDER / name).write_text("ours")
    (tmp_path / "share").symlink_to("mount")
    return tmp_path / "share"


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A directory outside with all the names that are looked for below the share: it stays as it is."""
    victim = tmp_path / "victim"
    for level in LEVELS:
        place = victim / FOLDER.removeprefix(level).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        for name in ("done.x.0", "old"):
            (place / name).write_text(SECRET)
    before = contents(victim)
    yield victim
    assert contents(victim) == before


def contents(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(path)): (each.lstat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in path.rglob("*")
    }


LAID: dict[str, Callable[[Path, Path], None]] = {
    "a link": lambda path, victim: path.symlink_to(victim / "old"),
    "another name of a file": lambda path, victim: path.hardlink_to(victim / "old"),
    "a FIFO": lambda path, victim: os.mkfifo(path),
}

ACTS: dict[str, Callable[[Any], Any]] = {
    "put": lambda shared: shared.put(FOLDER, "done.x.0", "ours", EVER),
    "put of a new file": lambda shared: shared.put(FOLDER, "done.y.0", "ours", EVER),
    "link": lambda shared: shared.link(FOLDER, "term.1", "ours", EVER),
    "move": lambda shared: shared.move(FOLDER, "old", "new", EVER),
    "remove": lambda shared: shared.remove(FOLDER, "done.x.0", "old"),
    "look": lambda shared: shared.look(FOLDER, ["done."], []),
    "flags": lambda shared: shared.flags([FOLDER]),
}


@pytest.mark.parametrize("level", LEVELS)
def test_a_link_is_refused_at_every_level(share: Path, victim: Path, level: str) -> None:
    shared, why = SHARE.Shared(str(share)), f"{share / level} is a symbolic link, and not followed"
    (share / level).rename(share / "moved")
    (share / level).symlink_to(victim)
    for act in ACTS.values():
        with pytest.raises(OSError, match=why):
            act(shared)
    assert SHARE.answer(shared, "look", level, [], []) == {"why": why}


@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_what_is_no_directory_is_refused(share: Path, kind: int) -> None:
    shared = SHARE.Shared(str(share))
    (share / CLAIMS).rename(share / "moved")
    os.mknod(share / CLAIMS, kind | 0o600, os.makedev(1, 3))
    for act in ("put", "look"):
        with pytest.raises(OSError, match=f"{share / CLAIMS} is not a directory"):
            ACTS[act](shared)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("act", ACTS)
def test_a_link_that_takes_a_folders_place_meanwhile(
    share: Path, victim: Path, level: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each call of the kernel in turn."""
    names = ("open", "mkdir", "rename", "link", "unlink", "rmdir", "lstat", "listdir", "fstat")
    real = {name: getattr(os, name) for name in names}
    calls = swap_at = 0

    def calling(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == swap_at:
                real["rename"](share / level, share / "moved")
                os.symlink(victim, share / level)
            return real[name](*args, **kwargs)

        return call

    while calls >= swap_at:
        calls, swap_at = 0, swap_at + 1
        found: Any = None
        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(os, name, calling(name))
            with suppress(OSError, ValueError):
                found = ACTS[act](SHARE.Shared(str(share)))
        assert SECRET not in str(found)
        if (share / level).is_symlink():
            (share / level).unlink()
            (share / "moved").rename(share / level)
    assert swap_at > 5


def test_a_file_of_anothers_is_neither_written_nor_opened(share: Path, victim: Path) -> None:
    shared = SHARE.Shared(str(share))
    for number, kind in enumerate((stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK)):
        os.mknod(share / FOLDER / f"kind.{number}", kind | 0o600, os.makedev(1, 5))
    (share / FOLDER / "kind.3").symlink_to(victim / "old")
    assert set(shared.look(FOLDER, ["kind."], [])["problems"].values()) == {"it is not a file", "it is a symbolic link"}
    (share / FOLDER / "done.x.0").unlink()
    for lay in ("another name of a file", "a link"):
        LAID[lay](share / FOLDER / "done.x.0", victim)
        assert shared.put(FOLDER, "done.x.0", "ours", EVER) == "ours"
        shared.remove(FOLDER, "done.x.0")


def test_a_directory_with_content_is_not_removed(share: Path) -> None:
    (share / FOLDER / "done.y.0" / "work").mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        SHARE.Shared(str(share)).remove(FOLDER, "done.y.0")


# Results


def results(share: Path, folder: str = "") -> Any:
    path = f"{share}/{folder}" if folder else str(share)
    return PROGRAM.Directory("/", str(share), path, 2, lambda written: None)


@pytest.mark.parametrize("level", ["runs", "runs/script-1", "runs/script-1/pod-logs"])
def test_a_link_among_the_folders_of_results(share: Path, victim: Path, level: str) -> None:
    (share / level).parent.mkdir(parents=True, exist_ok=True)
    (share / level).symlink_to(victim)
    directory, refused = results(share, "runs/script-1"), "is a symbolic link, and not followed"
    with pytest.raises(OSError, match=refused):
        directory.store("pod-logs/a.log", lambda: [b"text"])
    with pytest.raises(OSError, match=refused):
        directory.remove("pod-logs/a.log.")
    with pytest.raises(OSError, match=refused):
        directory.probe("pod-logs/.probe", "a.log")


@pytest.mark.parametrize("laid", LAID)
@pytest.mark.parametrize("name", ["a", "a.1.new", "a.2.new", ".probe"])
def test_what_is_laid_under_the_name_of_a_result(share: Path, victim: Path, laid: str, name: str) -> None:
    directory = results(share)
    LAID[laid](share / name, victim)
    directory.store("a", lambda: [b"text"])
    assert directory.probe(".probe", "a") == "a"
    assert (share / "a").read_text() == "text" and not (share / "a").is_symlink()
    LAID[laid](share / "b", victim)
    with pytest.raises(FileExistsError, match="it is there already"):
        directory.store("b", lambda: [b"text"], new=True)


def test_a_mount_that_cannot_rename_over_another_name_of_a_file(
    share: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    (share / "a").hardlink_to(victim / "old")
    monkeypatch.setattr(os, "rename", refuse)
    results(share).store("a", lambda: [b"text"])
    assert (share / "a").read_text() == "text" and not [*share.glob("a.*")]
