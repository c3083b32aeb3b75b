#!/bin/sh
# steps/triton.sh: triton's driver.py calls ldconfig without its path and reads the answer as UTF-8, which it need not be.
set -eu
file=$(python3 -c 'import importlib.util, os
print(os.path.join(os.path.dirname(importlib.util.find_spec("triton").origin), "backends/nvidia/driver.py"))')
sed -i -e 's|\["ldconfig"|["/sbin/ldconfig"|g' \
    -e '/ldconfig/s|\.decode()|.decode(errors="ignore")|g' "$file"
# Where a release says neither any more, this step has to be looked at again.
grep -q '"/sbin/ldconfig"' "$file"
grep -q 'decode(errors="ignore")' "$file"
