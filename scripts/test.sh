#!/bin/sh
# `make test`: set-up, style, then types beside the tests; at the end, how long each of them took.
#
#     scripts/test.sh PYTEST-ARGUMENT...
set -u
cd -P "$(dirname "$0")/.." || exit
bin=.venv/bin
began=$(date +%s) stages='' types=''
words=$(mktemp)
trap 'rm -f "$words"' EXIT
trap 'end; exit 130' INT
trap 'end; exit 143' TERM HUP

# shellcheck disable=SC2317  # the traps call it
end() { [ -z "$types" ] || kill "$types" 2>/dev/null; }

# stage NAME: it began when the one before it ended.
stage() {
    now=$(date +%s)
    stages="$stages, $1 $(minutes $((now - began)))"
    began=$now
}

minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

check_types() {
    code=0
    "$bin/mypy" >"$words" 2>&1 || code=$?
    echo "types: $(minutes $(($(date +%s) - began))), beside the tests" >>"$words"
    exit "$code"
}

scripts/setup.sh test || exit
stage set-up
"$bin/ruff" check . && "$bin/ruff" format --check . || exit
stage style
check_types &
types=$!
# In a fresh clone every worker would compile all tests: one process does it, on a core that mypy leaves idle.
[ -d tests/__pycache__ ] || "$bin/pytest" -qqq --collect-only >/dev/null
status=0
"$bin/pytest" "$@" || status=$?
stage tests
wait "$types" || status=$?
cat "$words"
echo "stages: ${stages#, }"
exit "$status"
