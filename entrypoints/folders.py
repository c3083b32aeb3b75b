"""Directories that others may write, too: below one that was named, no symbolic link is followed.

Else whoever may write there could lay a link where root, in a pod, is about to write or to delete. So each part of a
path is opened in the directory before it, which is open. Standard library only. Methods raise OSError.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

# O_PATH: a server is not asked to open what is only passed through, and nobody needs the permission to list it.
PASSED = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder:
    """An open directory, to be used in a `with`. Its methods take names of what is in it, not paths."""

    def __init__(self, path: str, fd: int = -1) -> None:
        """Without `fd`, the directory that was named: links that lead to it are followed."""
        self.path = path
        self.fd = os.open(path, PASSED) if fd < 0 else fd

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: Any) -> None:
        os.close(self.fd)

    def enter(self, name: str, *, make: bool = False) -> Folder:
        """A directory in this one. Refuses a link, and anything else."""
        if name in ("", ".", "..") or "/" in name:
            raise OSError(errno.EINVAL, f"{name!r} is not the name of a directory")
        path = f"{self.path}/{name}"
        try:
            return Folder(path, os.open(name, PASSED | os.O_NOFOLLOW, dir_fd=self.fd))
        except FileNotFoundError:
            if not make:
                raise
            self.make(name)
            return self.enter(name)
        except NotADirectoryError:
            if stat.S_ISLNK(self.stat(name).st_mode):
                raise OSError(errno.ELOOP, f"{path} is a symbolic link, and not followed") from None
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a directory") from None

    def make(self, name: str) -> None:
        """Make a directory, unless something has that name."""
        try:
            os.mkdir(name, dir_fd=self.fd)
        except FileExistsError:
            pass

    def names(self) -> list[str]:
        fd = os.open(".", LISTED, dir_fd=self.fd)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def stat(self, name: str) -> os.stat_result:
        """A link is not followed."""
        return os.lstat(name, dir_fd=self.fd)

    def open(self, name: str) -> BinaryIO:
        """A file, to be read. Raises ValueError for anything else."""
        check_file(self.stat(name).st_mode)  # before it is opened, which a device may take for a command
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            check_file(os.fstat(fd).st_mode)
            return open(fd, "rb")
        except (OSError, ValueError):
            os.close(fd)
            raise

    def read(self, name: str, most: int = -1) -> bytes:
        """At most so many bytes of a file. Raises ValueError for anything else."""
        with self.open(name) as file:
            return file.read(most)

    def create(self, name: str) -> int:
        """A descriptor of a new file, in place of what has that name: other names of that keep it."""
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(name, how, 0o644, dir_fd=self.fd)
        except FileExistsError:
            self.unlink(name)
            return os.open(name, how, 0o644, dir_fd=self.fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """A file, a link, or an empty directory."""
        if stat.S_ISDIR(self.stat(name).st_mode):
            os.rmdir(name, dir_fd=self.fd)
        else:
            self.unlink(name)

    def clear_away(self, name: str) -> None:
        """Remove a file as far as that is possible: what failed before is what counts."""
        try:
            self.unlink(name)
        except OSError:
            pass

    def sync(self) -> None:
        fd = os.open(".", LISTED, dir_fd=self.fd)
        try:
            sync(fd)
        finally:
            os.close(fd)


def check_file(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError("it is a symbolic link" if stat.S_ISLNK(mode) else "it is not a file")


def sync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # there is nothing to sync on such a mount
            raise
