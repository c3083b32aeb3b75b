"""Starts a program in a cgroup:  enter-cgroup.py FD CGROUP PROGRAM [ARGUMENT...]

The agent starts the process of a run through this, so that all that PROGRAM ever starts is in the run's cgroup. PROGRAM
gets the environment that was given to this program, to the byte: a shell would drop variables whose names it does not
like. Where the cgroup cannot be entered, PROGRAM is started outside. When PROGRAM cannot be started, FD gets the errno.
"""

import os
import signal
import sys

told, cgroup, *argv = sys.argv[1:]
os.set_inheritable(int(told), False)
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and PROGRAM would go on doing so
    signal.signal(number, signal.SIG_DFL)
try:
    with open(f"{cgroup}/cgroup.procs", "w") as procs:
        procs.write("0")  # who writes
except OSError:
    pass
with open("/proc/self/environ", "rb") as given:  # os.environ may have an LC_CTYPE more, by Python itself
    variables = (entry.partition(b"=") for entry in given.read().split(b"\0"))
    environ = {name: value for name, equals, value in variables if equals}
try:
    os.execvpe(argv[0], argv, environ)
except OSError as error:
    os.write(int(told), str(error.errno).encode())
    sys.exit(127)
