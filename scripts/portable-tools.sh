#!/bin/sh
# Gather what the agent and its tests need for a machine where nothing can be installed.
#
#   scripts/portable-tools.sh DIRECTORY [PYTHON_VERSION]
#
# Run it on Debian 12. It fills DIRECTORY, which can then be copied to a machine with the same processor and
# glibc 2.36 or later, and whose Python is PYTHON_VERSION (default 3.12):
#
#   bin/     the programs of scripts/setup.sh but mpirun; they find their libraries by themselves
#   lib/     those libraries, without glibc's: the ones of that machine are used
#   wheels/  the Python packages of the agent and its tests, and Open MPI 5
#
# There, scripts/use-portable-tools.sh starts commands with it. PYTHON names a Python with pip (default: that of
# .venv, else python3).
set -eu
cd "$(dirname "$0")/.."
CHECKOUT=$PWD

# <path of a program>:<Debian package that has it>
PROGRAMS="/usr/bin/ssh:openssh-client /usr/bin/ssh-keygen:openssh-client /usr/sbin/sshd:openssh-server
    /bin/ip:iproute2 /bin/ss:iproute2 /sbin/tc:iproute2 /usr/sbin/dnsmasq:dnsmasq-base /usr/bin/tini:tini /bin/ps:procps
    /usr/bin/unshare:util-linux /usr/bin/nsenter:util-linux /bin/mount:mount"
# Parts of glibc: they must be of one version with the program loader, which is that machine's.
GLIBC="ld-linux*|libc.so.*|libm.so.*|libdl.so.*|librt.so.*|libpthread.so.*|libresolv.so.*|libutil.so.*|libanl.so.*"
# Of the extra `test`: what a test runs with. Not what judges style, or looks at reports in a browser.
TEST_PACKAGES="hypothesis jsonschema pytest pytest-xdist"

say() { echo "portable-tools: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

# libraries PACKAGE...: all packages with libraries that these need, directly or not; some too many.
libraries() {
    apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances "$@" | grep -E '^(lib|zlib)' | grep -vE '^lib(c6|pam-|perl)' | sort -u
}

# Download packages to the working directory and unpack each into ./root.
unpack() {
    said=$(apt-get -qq -o APT::Sandbox::User=root download "$@" 2>&1) || fail "apt-get download: $said"
    for file in *.deb; do
        dpkg -x "$file" root
    done
    rm -f ./*.deb
}

# needs FILE: names of the libraries that a program or library wants, but for glibc's.
needs() {
    "$PATCHELF" --print-needed "$1" | while read -r name; do
        # shellcheck disable=SC2254  # a list of patterns
        eval "case \$name in $GLIBC) ;; *) echo \"\$name\" ;; esac"
    done
}

# Copy the programs, and all libraries that they need, directly or not.
copy_programs() {
    mkdir -p "$1/bin" "$1/lib"
    missing=''
    for pair in $PROGRAMS; do
        path=root${pair%%:*}
        [ -e "$path" ] || path=root/usr${pair%%:*}
        [ -e "$path" ] || fail "${pair##*:} has no ${pair%%:*}: is this Debian 12?"
        program=$1/bin/${path##*/}
        cp -L "$path" "$program"
        missing="$missing $(needs "$program")"
        # DT_RPATH, which holds for libraries of libraries too, and other than LD_LIBRARY_PATH not for children.
        # shellcheck disable=SC2016  # $ORIGIN is for the program loader
        "$PATCHELF" --force-rpath --set-rpath '$ORIGIN/../lib' "$program"
    done
    while [ -n "$missing" ]; do
        next=''
        for name in $missing; do
            [ ! -e "$1/lib/$name" ] || continue
            found=$(find root/lib root/usr/lib -name "$name" | head -n 1)
            [ -n "$found" ] || fail "no package brought the library $name"
            cp -L "$found" "$1/lib/$name"
            next="$next $(needs "$1/lib/$name")"
        done
        missing=$(echo "$next" | tr -s ' \n' '  ' | sed 's/^ $//')
    done
}

# What setup.cfg asks for, one requirement a line.
requirements() {
    # shellcheck disable=SC2086  # one word per name
    "$PYTHON" - "$CHECKOUT/setup.cfg" $TEST_PACKAGES <<'END'
import configparser, re, sys

setup = configparser.ConfigParser()
setup.read(sys.argv[1])
extras = setup["options.extras_require"]
lines = lambda text: [line.replace(" ", "") for line in text.split("\n") if line.strip()]
chosen = [line for line in lines(extras["test"]) if re.split(r"[][=<>~!]", line)[0] in sys.argv[2:]]
print("\n".join([*lines(setup["options"]["install_requires"]), *chosen, *lines(extras["ompi5"])]))
END
}

download_wheels() {
    machine=$(uname -m)
    platforms=''
    for minor in $(seq 5 36); do
        platforms="$platforms --platform manylinux_2_${minor}_$machine"
    done
    for name in manylinux1 manylinux2010 manylinux2014 linux; do
        platforms="$platforms --platform ${name}_$machine"
    done
    # shellcheck disable=SC2046,SC2086  # one word per requirement and per platform
    "$PYTHON" -m pip --quiet --disable-pip-version-check download --only-binary=:all: --implementation cp \
        --python-version "$2" $platforms --dest "$1/wheels" pip 'setuptools>=64' wheel $(requirements)
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    fail "usage: scripts/portable-tools.sh DIRECTORY [PYTHON_VERSION]"
fi
for program in apt-get apt-cache dpkg; do
    command -v "$program" >/dev/null || fail "there is no $program: it needs Debian 12"
done
case "$(cat /etc/debian_version 2>/dev/null)" in
12.*) ;;
*) fail "this is not Debian 12: its programs would want another glibc than the tests were made with" ;;
esac
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    [ ! -x .venv/bin/python ] || PYTHON=$CHECKOUT/.venv/bin/python
fi
"$PYTHON" -m pip --version >/dev/null 2>&1 || fail "$PYTHON has no pip: name a Python that has by PYTHON"
mkdir -p "$1"
DIRECTORY=$(cd "$1" && pwd)
VERSION=${2:-3.12}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
rm -rf "${DIRECTORY:?}/bin" "${DIRECTORY:?}/lib" "${DIRECTORY:?}/wheels"
cd "$WORK"
# shellcheck disable=SC2086  # one word per package
PACKAGES=$(for pair in $PROGRAMS; do echo "${pair##*:}"; done | sort -u)
apt-cache show tini >/dev/null 2>&1 || apt-get -qq update || fail "apt-get update does not work"
say "programs: $(echo "$PACKAGES" | tr '\n' ' ')"
mkdir patchelf
(cd patchelf && unpack patchelf)
PATCHELF=$WORK/patchelf/root/usr/bin/patchelf
# shellcheck disable=SC2046,SC2086  # one word per package
unpack $PACKAGES $(libraries $PACKAGES)
copy_programs "$DIRECTORY"
say "Python packages for Python $VERSION on $(uname -m)"
download_wheels "$DIRECTORY" "$VERSION" || fail "pip could not have all wheels for Python $VERSION"
say "$DIRECTORY: $(du -sh "$DIRECTORY" | cut -f 1), $(find "$DIRECTORY/bin" -type f | wc -l) programs," \
    "$(find "$DIRECTORY/lib" -type f | wc -l) libraries, $(find "$DIRECTORY/wheels" -type f | wc -l) wheels"
