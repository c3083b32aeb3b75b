#!/bin/sh
# steps/google-packages.sh: gcsfuse and google-cloud-cli of this release of Debian or Ubuntu, from Google's own archive.
#
# The old recipes took the archive gcsfuse-buster with apt-key: neither is in a current release.
set -eu
archive=https://packages.cloud.google.com/apt
key=/usr/share/keyrings/cloud.google.asc
steps=$(dirname "$0")
"$steps/packages.sh" ca-certificates curl
# shellcheck source=/dev/null
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
curl --fail --silent --show-error --location --retry 5 --output "$key" "$archive/doc/apt-key.gpg"
chmod 644 "$key"
for repository in "gcsfuse-$codename" cloud-sdk; do
    echo "deb [signed-by=$key] $archive $repository main"
done >/etc/apt/sources.list.d/google-cloud.list
"$steps/packages.sh" gcsfuse google-cloud-cli
