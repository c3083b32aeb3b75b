#!/bin/sh
# steps/python-state.sh: one number for all that the image's own Python can import; it changes if a file does.
set -eu
command -v python3 >/dev/null || exit 0
python3 -I - <<'PROGRAM'
import hashlib, os, sys

state = hashlib.sha256(sys.version.encode())
for place in sorted({os.path.realpath(place) for place in sys.path if os.path.isdir(place)}):
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            about = os.lstat(os.path.join(folder, name))
            state.update(f"{folder}/{name} {about.st_size} {about.st_mtime_ns}\n".encode())
print(state.hexdigest())
PROGRAM
