#!/bin/sh
# PYTHON_EXEC of torchrun in runs that have a limit: each worker's Python is started through last-words.py.
unset PYTHON_EXEC # for this torchrun alone, not for one that a worker starts
exec "${A4_AGENT_PYTHON:?}" -IS "${0%/*}/last-words.py" "${A4_LAST_WORDS:?}" "${A4_WORKLOAD_PYTHON:?}" "$@"
