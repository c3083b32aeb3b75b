#!/bin/sh
# steps/programs.sh: what the agent starts in a pod and this image does not have: OpenSSH, tini, a Python for itself.
#
# No SSH key may come with an image, or whoever can pull it can log in everywhere; the agent derives keys from the job's
# secret and runs sshd itself, so that of the package is neither enabled nor started.
set -eu
steps=$(dirname "$0")
before=$("$steps/python-state.sh")
missing=''
for pair in ssh:openssh-client /usr/sbin/sshd:openssh-server tini:tini python3:python3; do
    command -v "${pair%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
# shellcheck disable=SC2086  # one word per package
[ -z "$missing" ] || "$steps/packages.sh" $missing
rm -f /etc/ssh/ssh_host_*
for links in /etc/systemd/system /etc/rc?.d; do
    [ ! -d "$links" ] || find "$links" -type l \( -name 'ssh.*' -o -name 'sshd.*' -o -name 'S??ssh' \) -delete
done
: >/etc/ssh/sshd_not_to_be_run
after=$("$steps/python-state.sh")
if [ -n "$before" ] && [ "$before" != "$after" ]; then
    echo "programs.sh: apt has changed the image's own Python: what it runs was not tested with that" >&2
    exit 1
fi
