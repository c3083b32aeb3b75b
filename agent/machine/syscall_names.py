"""Names of the system calls in which processes are found waiting."""

from __future__ import annotations

# name: numbers on x86_64 and aarch64 (-1: not there), from Linux' <asm/unistd.h>.
_NUMBERS = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "clock_nanosleep": (230, 115),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "connect": (42, 203),
    "epoll_pwait": (281, 22),
    "epoll_wait": (232, -1),
    "execve": (59, 221),
    "fcntl": (72, 25),
    "fdatasync": (75, 83),
    "flock": (73, 32),
    "fsync": (74, 82),
    "futex": (202, 98),
    "getdents64": (217, 61),
    "io_uring_enter": (426, 426),
    "ioctl": (16, 29),
    "madvise": (28, 233),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "open": (2, -1),
    "openat": (257, 56),
    "pause": (34, -1),
    "poll": (7, -1),
    "ppoll": (271, 73),
    "pread64": (17, 67),
    "pselect6": (270, 72),
    "pwrite64": (18, 68),
    "read": (0, 63),
    "readv": (19, 65),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "renameat2": (316, 276),
    "restart_syscall": (219, 128),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "select": (23, -1),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "statx": (332, 291),
    "unlinkat": (263, 35),
    "vfork": (58, -1),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "write": (1, 64),
    "writev": (20, 66),
}
_MACHINES = ("x86_64", "aarch64")


def syscall_name(line: str, machine: str) -> str:
    """What /proc/PID/syscall says, in words: `running`, a name or a number; empty outside of any call.

    `machine` is that of uname.
    """
    number = line.partition(" ")[0]
    if not number.isdecimal():
        return number if number == "running" else ""
    if machine in _MACHINES:
        column = _MACHINES.index(machine)
        for name, numbers in _NUMBERS.items():
            if numbers[column] == int(number):
                return name
    return f"syscall {number}"
