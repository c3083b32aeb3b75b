#!/bin/sh
# steps/packages.sh PACKAGE...: install Debian packages; nothing of apt's own stays in the layer.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
